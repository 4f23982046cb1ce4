// bench_hosts predicts the time of an all-reduce on more hosts than there are, by a simulation of links and their
// queues. It runs the schedules of the library, without data, in the host executor's order and with its window.
// Computing takes no time, and no message is lost, so that only the cost of the exchange itself remains.
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"
#include "exchange/resolved_call.hpp"
#include "gradwire/link.hpp"
#include "tests/support/simulated_links.hpp"

namespace gradwire::bench {
namespace {

using exchange::SimulatedLink;
using exchange::SimulatedLinks;

struct Options {
  std::vector<std::string> hosts{"2", "4", "8", "64", "512"};
  std::vector<std::string> codecs{"int8", "exact"};
  std::vector<std::string> bytes{"16MiB", "64MiB", "256MiB"};
  std::string link = "1Gbit/s,50us";
  std::string jitter = "500us";
  std::string markdown;
};

struct Outcome {
  std::uint64_t lanes = 0;
  double seconds = 0;
  double wire_seconds = 0;  // for one host's bytes on the link alone
  double queue_bytes = 0;
};

double seconds(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

Outcome simulate(int hosts, const std::string& codec, std::uint64_t bytes, const SimulatedLink& link) {
  constexpr int kCallsBefore = 2;  // the window adapts during these
  std::vector<exchange::Schedule> schedules;
  std::optional<exchange::HopCodecs> codecs;
  for (int rank = 0; rank < hosts; ++rank) {
    const CodecSpec spec = CodecSpec::parse(codec);
    auto [call, schedule] = exchange::resolve({.codec = spec, .count = bytes / sizeof(float)}, {rank, hosts});
    codecs = call.codecs;
    schedules.push_back(std::move(schedule));
  }
  const auto frame_bytes = [&](const exchange::Instruction& instruction) {
    return codecs->of(instruction.hop).frame_bytes(instruction.chunk.count);
  };
  SimulatedLinks links(hosts, link, {});
  Outcome outcome{.lanes = schedules[0].lanes};
  for (int call = 0; call <= kCallsBefore; ++call) {
    outcome.seconds = links.run(schedules, frame_bytes);
  }
  outcome.wire_seconds = static_cast<double>(links.sent_bytes()) / link.bytes_per_second;
  outcome.queue_bytes = links.peak_queue_bytes();
  return outcome;
}

void run(const Options& options) {
  const Link parsed = Link::parse(options.link);
  const SimulatedLink link{parsed.bytes_per_second, seconds(parsed.latency), seconds(parse_duration(options.jitter)),
                           true};
  TextTable table({"hosts", "bytes", "codec", "lanes", "ms", "wire ms", "wire busy", "score", "queue"});
  for (const std::string& hosts_text : options.hosts) {
    const int hosts = std::stoi(hosts_text);
    for (const std::string& bytes_text : options.bytes) {
      const std::uint64_t bytes = parse_bytes(bytes_text);
      const double ring = 2.0 * (hosts - 1) / hosts * static_cast<double>(bytes) / link.bytes_per_second;
      for (const std::string& codec : options.codecs) {
        const Outcome outcome = simulate(hosts, codec, bytes, link);
        table.add({hosts_text, bytes_text, codec, std::to_string(outcome.lanes), fixed(outcome.seconds * 1e3, 1),
                   fixed(outcome.wire_seconds * 1e3, 1), fixed(outcome.wire_seconds / outcome.seconds * 100, 0) + "%",
                   fixed(ring / outcome.seconds, 2), format_bytes(static_cast<std::uint64_t>(outcome.queue_bytes))});
        std::fprintf(stderr, "%s hosts, %s, %s: done\n", hosts_text.c_str(), bytes_text.c_str(), codec.c_str());
      }
    }
  }
  const std::string head =
      "Simulated, nothing was sent: all-reduce by two_shot, a link of " + options.link +
      " for each host and direction, one rank a host. Computing takes no time, but a message is up to " +
      options.jitter +
      " late, by chance. Score: time of a "
      "perfect uncompressed ring without latency, over that of this. Queue: the most that waited "
      "at a switch for one host's link.";
  publish(head, table, {options.markdown});
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_hosts", [&] {
    gradwire::bench::Options options;
    gradwire::bench::CommandLine line(
        "Simulates all-reduce over many hosts: how far queues and latencies keep it from the limit of the wire. "
        "Nothing "
        "is sent.");
    line.option("--hosts", options.hosts, "Numbers of hosts, of one rank each");
    line.option("--codec", options.codecs, "Codecs, such as int8,exact");
    line.option("--bytes", options.bytes, "Uncompressed sizes");
    line.option("--link", options.link, "Each host's link, such as 1Gbit/s,50us");
    line.option("--jitter", options.jitter, "A message is so much late at most, as where its rank has no core");
    line.option("--markdown", options.markdown, "Write the table to this file, as Markdown");
    line.parse(argc, argv);
    gradwire::bench::run(options);
    return 0;
  });
}

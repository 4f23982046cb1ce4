// The page pool beside malloc of glibc, jemalloc and mimalloc: one frame after the other, frames of random sizes, and
// what a training takes and frees, which is recorded here. Each allocator plays the same recording in a process of its
// own, preloaded if it is not glibc's; allocators alternate, and medians count. Then a soak: calls of changing sizes,
// after which the pool may not hold more than after its first 100.
//   bench_memory [--rounds 7] [--soak 100000] [--json FILE] [--markdown FILE]
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "bench/memory/recording.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "gradwire/communicator.hpp"
#include "memory/process_pool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::bench {
namespace {

struct Options {
  std::uint32_t rounds = 7;
  std::uint32_t soak = 100'000;
  std::string json;
  std::string markdown;
  std::string recording;  // with this, the program is a child that plays it
  std::string player = "malloc";
  std::uint32_t repeat = 1;
  bool touches = false;
};

struct Allocator {
  std::string name;
  std::string preload;  // a shared library
};
const std::array<Allocator, 4> kAllocators = {
    {{"pool", ""}, {"glibc", ""}, {"jemalloc", "libjemalloc.so.2"}, {"mimalloc", "libmimalloc.so.2.0"}}};

struct Scene {
  std::string name;
  MemoryRecording recording;
  std::uint32_t repeat;
  bool touches;
};

// Returns what a child prints, which plays the file; nothing if its allocator is not there.
std::vector<Played> play_in_child(const Allocator& allocator, const Scene& scene, const std::string& file) {
  std::string command = "exec 2>/dev/null; ";
  if (!allocator.preload.empty()) {
    command += "LD_PRELOAD=" + allocator.preload + ' ';
  }
  command += "/proc/" + std::to_string(::getpid()) + "/exe --recording " + file + " --player " +
             (allocator.name == "pool" ? "pool" : "malloc") + " --repeat " + std::to_string(scene.repeat) +
             (scene.touches ? " --touch" : "") + " --library '" + allocator.preload + "'";
  std::vector<Played> played;
  if (std::FILE* const out = ::popen(command.c_str(), "r"); out != nullptr) {
    Played one;
    unsigned long long peak = 0;
    if (std::fscanf(out, "%lf %llu", &one.nanoseconds, &peak) == 2) {
      one.peak_bytes = peak;
      played.push_back(one);
    }
    ::pclose(out);
  }
  return played;
}

// Whether a library is loaded into this process.
bool is_loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library.substr(0, library.find(".so"))) != std::string::npos) {
      return true;
    }
  }
  return false;
}

int be_child(const Options& options, const std::string& library) {
  if (!library.empty() && !is_loaded(library)) {
    return 3;
  }
  const Played played =
      play(read_recording(options.recording), options.player == "pool" ? Player::pool : Player::malloc, options.touches,
           static_cast<int>(options.repeat));
  std::printf("%.3f %llu\n", played.nanoseconds, static_cast<unsigned long long>(played.peak_bytes));
  return 0;
}

std::vector<Scene> make_scenes() {
  std::vector<Scene> scenes;
  for (const std::uint32_t kibibytes : {56U, 256U, 1024U, 4096U}) {
    scenes.push_back(
        {"one frame of " + format_bytes(kibibytes * 1024ULL), one_frame(kibibytes * 1024, 200'000), 3, false});
  }
  scenes.push_back({"16 frames, random sizes", random_frames(100'000), 3, false});
  const MemoryRecording training = record_training();
  scenes.push_back({"training", training, 40, false});
  scenes.push_back({"training, each page written", training, 3, true});
  return scenes;
}

void compare(const Options& options, Json& report, TextTable& table) {
  const test::ScratchFolder folder;
  for (const Scene& scene : make_scenes()) {
    const std::string file = folder.file("recording");
    write_recording(file, scene.recording);
    std::array<std::vector<double>, kAllocators.size()> times;
    std::array<std::vector<double>, kAllocators.size()> peaks;
    for (std::uint32_t round = 0; round < options.rounds; ++round) {
      for (std::size_t i = 0; i < kAllocators.size(); ++i) {
        const std::size_t which = (i + round) % kAllocators.size();
        for (const Played& played : play_in_child(kAllocators[which], scene, file)) {
          times[which].push_back(played.nanoseconds);
          peaks[which].push_back(static_cast<double>(played.peak_bytes));
        }
      }
    }
    Json row = {{"scene", scene.name}, {"events", scene.recording.size()}};
    std::vector<std::string> cells = {scene.name};
    for (std::size_t i = 0; i < kAllocators.size(); ++i) {
      if (times[i].empty()) {
        cells.emplace_back("not installed");
        continue;
      }
      const double time = median(times[i]);
      const double peak = median(peaks[i]);
      row[kAllocators[i].name] = {{"ns", time}, {"peak_bytes", peak}};
      cells.push_back(fixed(time, 0) + " ns" +
                      (scene.touches ? ", " + format_bytes(static_cast<std::uint64_t>(peak) >> 20 << 20) : ""));
    }
    report["rows"].push_back(row);
    table.add(cells);
  }
}

// Returns the bytes that the pool held after the first 100 calls and at the end.
std::array<std::uint64_t, 2> soak(std::uint32_t calls) {
  std::array<std::uint64_t, 2> reserved = {};
  auto world = make_inproc_world(2);
  std::vector<std::thread> threads;
  for (std::shared_ptr<Transport>& transport : world) {
    threads.emplace_back([&reserved, calls, &transport] {
      Communicator communicator(std::move(transport));
      std::mt19937 random(11);
      std::vector<float> values(60'000, 1.5F);
      for (std::uint32_t call = 0; call < calls; ++call) {
        const std::size_t count =
            call < 100 ? values.size() - 100 * call : 1 + random() % values.size() / (1 + random() % 16);
        communicator.all_reduce(view(values.data(), count), {.codec = "int8"});
        if (communicator.rank() == 0 && (call == 100 || call + 1 == calls)) {
          reserved[call == 100 ? 0 : 1] = memory::page_pool().statistics().reserved_high_water;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return reserved;
}

int run(int argc, char** argv) {
  Options options;
  std::string library;
  CommandLine command_line("Compares the page pool with malloc of glibc, jemalloc and mimalloc.");
  command_line.option("--rounds", options.rounds, "runs of each allocator").positive();
  command_line.option("--soak", options.soak, "calls of the soak");
  command_line.option("--json", options.json, "file for the figures");
  command_line.option("--markdown", options.markdown, "file for the table");
  command_line.option("--recording", options.recording, "play this file and print time and memory; used by itself");
  command_line.option("--player", options.player, "pool or malloc").one_of({"pool", "malloc"});
  command_line.option("--repeat", options.repeat, "how many times to play").positive();
  command_line.option("--library", library, "the allocator that must be loaded");
  command_line.flag("--touch", options.touches, "write to each page");
  command_line.parse(argc, argv);
  if (!options.recording.empty()) {
    return be_child(options, library);
  }
  Json report = make_report("gradwire.bench_memory.1");
  std::vector<std::string> header = {"blocks, taken and freed"};
  for (const Allocator& allocator : kAllocators) {
    header.push_back(allocator.name);
  }
  TextTable table(header);
  compare(options, report, table);
  std::string text =
      "Medians of " + std::to_string(options.rounds) +
      " runs, for a block that is taken and freed; with the rise of the process's memory where each page is "
      "written.";
  if (options.soak > 100) {
    const auto [first, last] = soak(options.soak);
    report["soak"] = {{"calls", options.soak}, {"reserved_after_100", first}, {"reserved_at_end", last}};
    text += " Soak of " + std::to_string(options.soak) + " calls: " + format_bytes(first) +
            " held at most after 100, " + format_bytes(last) + " after all.";
  }
  publish(text, table, {options.markdown, options.json}, report);
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_memory", [&] { return gradwire::bench::run(argc, argv); });
}

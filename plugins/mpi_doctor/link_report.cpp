#include "plugins/mpi_doctor/link_report.hpp"

#include <chrono>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "plugins/mpi_doctor/findings.hpp"

namespace gradwire::doctor {
namespace {

std::string latency(const LinkEstimate::Tier& tier) {
  return format_duration(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(tier.latency_seconds)));
}

}  // namespace

std::string link_report(const LinkEstimate& link, std::size_t ranks, std::size_t hosts) {
  const auto row = [](const std::string& where, const LinkEstimate::Tier& tier) {
    return std::vector<std::string>{where, latency(tier), format_rate(tier.bytes_per_second)};
  };
  std::vector<std::vector<std::string>> rows{{"link", "latency", "bandwidth"}};
  if (link.ranks_per_node > 1) {
    rows.push_back(row("inside a host", link.intra));
  }
  rows.push_back(row(hosts == 1 ? "inside the host" : "between hosts", link.inter));
  constexpr double kThousand = 1000;
  const std::string text = "Links of " + counted(ranks, "rank") + " on " + counted(hosts, "host") + ", measured in " +
                           format_number(link.measured_in_seconds * kThousand, 3) + " ms\n" + text::table(rows, "lrr");
  if (hosts == 1) {
    return text +
           "These ranks share one host: this is its memory, not a network.\n"
           "Start ranks on several hosts to measure the network: mpirun --host a,b -np 2 gradwire info --link\n";
  }
  return text + "In a policy:\n[link]\nbandwidth = \"" + format_rate(link.inter.bytes_per_second) + "\"\nlatency = \"" +
         latency(link.inter) + "\"\n";
}

}  // namespace gradwire::doctor

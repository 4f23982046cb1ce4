// Prints a session's statistics as a table for people and as JSON.
#include "gradwire/statistics.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"

namespace gradwire {
namespace {

constexpr const char* kLegend =
    "in: bytes of the tensors; sent: bytes given to the transport; ratio: what a perfect uncompressed algorithm "
    "sends / sent;\nall codecs but exact and exact+zstd are lossy\n"
    "encode, decode, wire (waiting for messages) and total: time of this rank's calls, summed; rel error: of the sums, "
    "- where it is not measured\n";

std::string milliseconds(double seconds) { return format_number(seconds * 1e3, 4); }

std::vector<std::string> row_of(const std::string& name, const std::string& codec, const std::string& algorithm,
                                std::uint64_t tensors, const Statistics& totals) {
  const double error = totals.relative_error();
  return {name,
          codec,
          algorithm,
          std::to_string(tensors),
          std::to_string(totals.calls),
          format_bytes(totals.bytes_in),
          format_bytes(totals.bytes_sent),
          format_number(totals.ratio(), 4),
          milliseconds(totals.encode_seconds),
          milliseconds(totals.decode_seconds),
          milliseconds(totals.wire_seconds),
          milliseconds(totals.total_seconds),
          error < 0 ? "-" : format_number(error, 3)};
}

nlohmann::ordered_json json_of(const Statistics& totals) {
  nlohmann::ordered_json json{{"calls", totals.calls},
                              {"elements", totals.elements},
                              {"bytes_in", totals.bytes_in},
                              {"bytes_sent", totals.bytes_sent},
                              {"bytes_intra", totals.bytes_intra},
                              {"bytes_inter", totals.bytes_inter},
                              {"bytes_uncompressed", totals.bytes_uncompressed},
                              {"ratio", totals.ratio()},
                              {"frames_sent", totals.frames_sent},
                              {"nonfinite_frames", totals.nonfinite_frames},
                              {"encode_seconds", totals.encode_seconds},
                              {"decode_seconds", totals.decode_seconds},
                              {"wire_seconds", totals.wire_seconds},
                              {"total_seconds", totals.total_seconds}};
  // Values that were not measured are null, so that nobody averages a -1.
  const bool measured = totals.relative_error() >= 0;
  json["squared_error"] = measured ? nlohmann::ordered_json(totals.squared_error) : nlohmann::ordered_json();
  json["squared_norm"] = measured ? nlohmann::ordered_json(totals.squared_norm) : nlohmann::ordered_json();
  json["relative_error"] = measured ? nlohmann::ordered_json(totals.relative_error()) : nlohmann::ordered_json();
  return json;
}

}  // namespace

std::string SessionStatistics::to_text() const {
  std::vector<std::vector<std::string>> rows{{"group", "codec", "algorithm", "tensors", "calls", "in", "sent", "ratio",
                                              "encode ms", "decode ms", "wire ms", "total ms", "rel error"}};
  std::uint64_t all_tensors = 0;
  std::uint64_t compressed_tensors = 0;
  for (const Group& group : groups) {
    rows.push_back(row_of(group.name, group.codec, group.algorithm, group.tensors, group.totals));
    all_tensors += group.tensors;
    compressed_tensors += group.compressed ? group.tensors : 0;
  }
  rows.push_back(row_of("compressed calls", "", "", compressed_tensors, compressed()));
  rows.push_back(row_of("all calls", "", "", all_tensors, all()));
  std::string more;
  if (!switches.empty()) {
    more = "codecs chosen, last: from step " + std::to_string(switches.back().step) + " on " + switches.back().to +
           " in " + std::to_string(switches.back().buckets) + " bucket(s), " + switches.back().reason + "; " +
           std::to_string(switches.size()) + " in all\n";
  }
  for (const Group& group : groups) {
    if (!group.algorithm_reason.empty()) {
      more += "algorithm of " + group.name + " by the cost model: " + group.algorithm_reason + "\n";
    }
    if (group.sync != "step") {
      more += group.name + ": sync " + group.sync;
      more += group.late.results == 0 ? "\n"
                                      : "; results came " + format_number(group.late.mean(), 3) +
                                            " steps late, at most " + std::to_string(group.late.oldest) + "\n";
    }
  }
  if (device_memory) {
    more += "device memory: " + format_bytes(device_memory->bytes_in_use) + " in use, peak " +
            format_bytes(device_memory->peak_bytes) + ", held " + format_bytes(device_memory->held_bytes) +
            "; pinned host memory: " + format_bytes(device_memory->pinned_bytes) + "\n";
  }
  for (const RowTable& table : tables) {
    if (table.file_bytes > 0) {
      const std::uint64_t asked = std::max<std::uint64_t>(1, table.hits + table.reads);
      more += "table " + table.name + ": " + std::to_string(table.rows_in_memory) + " rows in memory (" +
              format_bytes(table.memory_bytes) + "), " + std::to_string(table.rows_in_file) + " in its file (" +
              format_bytes(table.file_bytes) + "), " +
              format_number(100 * static_cast<double>(table.hits) / static_cast<double>(asked), 3) +
              "% of accesses found in memory\n";
    }
  }
  if (const Statistics sum = all(); sum.bytes_inter != 0) {
    more += "sent inside nodes: " + format_bytes(sum.bytes_intra) +
            ", between nodes: " + format_bytes(sum.bytes_inter) + "\n";
  }
  return "rank " + std::to_string(rank) + " of " + std::to_string(world_size) + " over " + transport + ", " +
         std::to_string(steps) + " steps, " + milliseconds(exposed_seconds) + " ms waited in finish()\n" + more +
         text::table(rows, "lllrrrrrrrrrr") + kLegend;
}

std::string SessionStatistics::to_json() const {
  nlohmann::ordered_json json{{"transport", transport},
                              {"rank", rank},
                              {"world_size", world_size},
                              {"steps", steps},
                              {"exposed_seconds", exposed_seconds},
                              {"commit_seconds", commit_seconds},
                              {"comparisons", comparisons},
                              {"comparison_seconds", comparison_seconds},
                              {"ratio", all().ratio()},
                              {"ratio_compressed", compressed().ratio()},
                              {"all", json_of(all())},
                              {"compressed", json_of(compressed())},
                              {"groups", nlohmann::ordered_json::array()}};
  if (device_memory) {
    json["device_memory"] = {{"bytes_in_use", device_memory->bytes_in_use},
                             {"peak_bytes", device_memory->peak_bytes},
                             {"held_bytes", device_memory->held_bytes},
                             {"pinned_bytes", device_memory->pinned_bytes}};
  }
  if (host_memory) {
    nlohmann::ordered_json uses = nlohmann::ordered_json::object();
    for (const HostMemory::Use& use : host_memory->uses) {
      uses[use.name] = {{"bytes_in_use", use.bytes_in_use}, {"peak_bytes", use.peak_bytes}};
    }
    json["host_memory"] = {{"bytes_in_use", host_memory->bytes_in_use},
                           {"peak_bytes", host_memory->peak_bytes},
                           {"held_bytes", host_memory->held_bytes},
                           {"limit_bytes", host_memory->limit_bytes},
                           {"fragmentation", host_memory->fragmentation},
                           {"pages", host_memory->pages},
                           {"uses", uses}};
  }
  for (const RowTable& table : tables) {
    json["tables"].push_back({{"name", table.name},
                              {"rows_held", table.rows_held},
                              {"rows_in_memory", table.rows_in_memory},
                              {"rows_in_file", table.rows_in_file},
                              {"hits", table.hits},
                              {"reads", table.reads},
                              {"memory_bytes", table.memory_bytes},
                              {"file_bytes", table.file_bytes}});
  }
  for (const CodecSwitch& change : switches) {
    json["switches"].push_back({{"step", change.step},
                                {"from", change.from},
                                {"to", change.to},
                                {"buckets", change.buckets},
                                {"reason", change.reason},
                                {"cause", change.cause}});
  }
  for (const Group& group : groups) {
    json["groups"].push_back({{"name", group.name},
                              {"codec", group.codec},
                              {"algorithm", group.algorithm},
                              {"algorithm_reason", group.algorithm_reason},
                              {"compressed", group.compressed},
                              {"tensors", group.tensors},
                              {"sync", group.sync},
                              {"late_results", group.late.results},
                              {"oldest_result_steps", group.late.oldest},
                              {"mean_result_steps", group.late.mean()},
                              {"totals", json_of(group.totals)}});
  }
  // Names come from the user and may not be valid UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace gradwire

// Parses the JSON of a rank's history, which may be cut off or damaged.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/command_line.hpp"
#include "gradwire/error.hpp"
#include "watch/history.hpp"
#include "watch/page/histories.hpp"

namespace gradwire::watch::page {
namespace {

using nlohmann::json;

constexpr int kMostRanks = 1 << 20;
constexpr double kMostTime = 1e11;  // seconds since 1970
constexpr std::size_t kMostSamplesRead = 1 << 16;

[[noreturn]] void corrupt(const std::string& what) { throw Error(ErrorCode::corrupt, what); }

Column column_of(const json& values, std::size_t samples) {
  if (!values.is_array() || values.size() != samples) {
    corrupt("its columns differ in length");
  }
  Column column;
  column.reserve(values.size());
  for (const json& value : values) {
    column.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return column;
}

/// Converts a number, which may be 1e300 in a damaged file, to an integer.
template <typename Whole>
Whole whole(const json& value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const double low = std::is_signed_v<Whole> ? std::max<double>(std::numeric_limits<Whole>::min(), -kExact) : 0;
  const double high = std::min(static_cast<double>(std::numeric_limits<Whole>::max()), kExact);
  return static_cast<Whole>(std::clamp(value.get<double>(), low, high));
}

std::vector<ReplacedRow> replaced_of(const json& rows) {
  std::vector<ReplacedRow> all;
  for (const json& row : rows) {
    all.push_back({.function = row.at("function"),
                   .reason = row.at("reason"),
                   .calls = row.at("calls"),
                   .bytes_in = row.at("bytes_in"),
                   .bytes_sent = row.at("bytes_sent"),
                   .bytes_dense = row.at("bytes_dense"),
                   .seconds = row.at("seconds")});
  }
  return all;
}

std::vector<MessageRow> messages_of(const json& rows) {
  std::vector<MessageRow> all;
  for (const json& row : rows) {
    const json& up_to = row.at("up_to");
    all.push_back({.up_to = up_to.is_null() ? std::numeric_limits<double>::infinity() : up_to.get<double>(),
                   .count = row.at("count"),
                   .bytes = row.at("bytes"),
                   .seconds = row.at("seconds")});
  }
  return all;
}

GroupHistory group_of(const json& group, std::size_t samples) {
  GroupHistory history{.name = group.at("name"),
                       .codec = group.at("codec"),
                       .algorithm = group.at("algorithm"),
                       .sync = group.at("sync"),
                       .in_use = column_of(group.at("in_use"), samples),
                       .columns = {}};
  for (const auto& [name, values] : group.items()) {
    if (values.is_array() && name != "in_use") {
      history.columns.emplace(name, column_of(values, samples));
    }
  }
  return history;
}

void read_samples(const json& root, RankHistory& history) {
  const json& samples = root.at("samples");
  const std::size_t count = samples.at("time").size();
  if (count > kMostSamplesRead) {
    corrupt("it has " + std::to_string(count) + " samples");
  }
  history.time = column_of(samples.at("time"), count);
  const bool finite = std::all_of(history.time.begin(), history.time.end(), [](double t) { return std::isfinite(t); });
  if (count == 0 || !finite || !std::is_sorted(history.time.begin(), history.time.end()) || history.time.front() < 0) {
    corrupt("its times do not rise");
  }
  for (const auto& [name, values] : samples.items()) {
    history.columns.emplace(name, column_of(values, count));
  }
  for (const json& group : root.at("groups")) {
    history.groups.push_back(group_of(group, count));
  }
  for (const auto& [name, values] : root.at("gauges").items()) {
    history.gauges.emplace(name, column_of(values, count));
  }
}

RankHistory history_of(const json& root, const std::string& file) {
  if (!root.is_object() || root.value("format", "") != "gradwire history") {
    corrupt("it has another format");
  }
  if (whole<int>(root.at("version")) != kHistoryFormat) {
    corrupt("it is of version " + root.at("version").dump() + " and this gradwire reads " +
            std::to_string(kHistoryFormat));
  }
  RankHistory history{.file = file,
                      .job = root.value("job", ""),
                      .part = root.at("part"),
                      .rank = whole<int>(root.at("rank")),
                      .world = whole<int>(root.at("world")),
                      .version = root.at("gradwire"),
                      .transport = root.at("transport"),
                      .host = root.at("host"),
                      .command = without_secrets(root.at("command").get<std::vector<std::string>>()),
                      .environment = root.at("environment"),
                      .started = root.at("started"),
                      .written = root.at("written"),
                      .ended = root.at("ended"),
                      .codecs = root.at("codecs"),
                      .causes = root.at("causes"),
                      .switches = {},
                      .replaced = replaced_of(root.at("replaced")),
                      .messages = messages_of(root.value("messages", json::array()))};
  if (history.rank < 0 || history.rank >= kMostRanks || history.world < 1 || history.world > kMostRanks) {
    corrupt("its rank is " + std::to_string(history.rank) + " of " + std::to_string(history.world));
  }
  if (!std::isfinite(history.started) || std::abs(history.started) > kMostTime) {
    corrupt("it started at no time");
  }
  for (const json& each : root.at("switches")) {
    history.switches.push_back({.step = whole<std::uint64_t>(each.at("step")),
                                .from = each.at("from"),
                                .to = each.at("to"),
                                .buckets = whole<std::uint64_t>(each.at("buckets")),
                                .reason = each.at("reason")});
  }
  read_samples(root, history);
  return history;
}

}  // namespace

RankHistory parse_history(const std::string& text, const std::string& file) {
  try {
    return history_of(json::parse(text), file);
  } catch (const json::parse_error& error) {
    throw Error(ErrorCode::corrupt,
                file + " is cut off or damaged at byte " + std::to_string(error.byte) + "; remove it");
  } catch (const json::exception& error) {
    throw Error(ErrorCode::corrupt, file + " is no history of a rank: " + error.what());
  } catch (const Error& error) {
    throw Error(ErrorCode::corrupt, file + " is no history of a rank: " + error.what());
  }
}

}  // namespace gradwire::watch::page

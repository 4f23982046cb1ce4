#include "session/parts/auto_codec/level_text.hpp"

namespace gradwire::session {

std::string level_name(const plan::Bucket& bucket, std::size_t level) {
  return level == 0 ? "dense" : bucket.levels[level].stage.codec.to_string();
}

std::string level_text(const plan::Plan& plan, const choice::Levels& levels, std::size_t group) {
  std::map<std::size_t, std::pair<std::string, std::size_t>> used;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    if (plan.buckets[i].group == group && !plan.buckets[i].levels.empty()) {
      auto& [name, buckets] = used[levels[i]];
      name = level_name(plan.buckets[i], levels[i]);
      ++buckets;
    }
  }
  std::string text = "auto";
  for (const auto& [level, use] : used) {
    text += (text == "auto" ? ": " : ", ") + use.first + (used.size() > 1 ? " " + std::to_string(use.second) : "");
  }
  return text;
}

std::map<std::pair<std::string, std::string>, std::size_t> level_changes(const plan::Plan& plan,
                                                                         const choice::Levels& from,
                                                                         const choice::Levels& to) {
  std::map<std::pair<std::string, std::string>, std::size_t> changes;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const plan::Bucket& bucket = plan.buckets[i];
    if (!bucket.levels.empty() && (from.empty() || from[i] != to[i])) {
      ++changes[{from.empty() ? "" : level_name(bucket, from[i]), level_name(bucket, to[i])}];
    }
  }
  return changes;
}

}  // namespace gradwire::session

// Names what buckets with codec = "auto" take, for reports.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "choice/auto_levels.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

/// Returns "dense" or the codec, such as "int8".
[[nodiscard]] std::string level_name(const plan::Bucket& bucket, std::size_t level);
/// Returns the codecs of a group's buckets, such as "auto: int8" or "auto: int8 3, dense 1".
[[nodiscard]] std::string level_text(const plan::Plan& plan, const choice::Levels& levels, std::size_t group);
/// Returns how many buckets change from one codec to another. `from` is empty at the start, when all buckets come from
/// "".
[[nodiscard]] std::map<std::pair<std::string, std::string>, std::size_t> level_changes(const plan::Plan& plan,
                                                                                       const choice::Levels& from,
                                                                                       const choice::Levels& to);

}  // namespace gradwire::session

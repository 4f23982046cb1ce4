// Describes the result of a comparison in sentences.
#pragma once

#include <string>
#include <vector>

#include "training.hpp"

namespace char_lm {

/// Returns three sentences: whether the link slowed dense training down, what the fastest row gained, and how the
/// losses compare. They are computed from these rows, of one seed; the result is empty without "dense" and another row.
/// `link` is the emulated one, or empty.
[[nodiscard]] std::vector<std::string> conclude(const std::vector<RunResult>& rows, const std::string& link);

}  // namespace char_lm

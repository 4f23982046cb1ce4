// What a comparison shows, in sentences.
#pragma once

#include <string>
#include <vector>

#include "training.hpp"

namespace char_lm {

/// Three sentences: whether the link held dense training back, what the fastest row gained, what became of the losses.
/// All is from these rows, of one seed; empty without "dense" and another row. `link` as it is emulated, or empty.
[[nodiscard]] std::vector<std::string> conclude(const std::vector<RunResult>& rows, const std::string& link);

}  // namespace char_lm

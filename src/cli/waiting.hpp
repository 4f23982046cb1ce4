// Whom ranks wait for, by how long each one waits: `gradwire top` and `gradwire report` say the same.
#pragma once

#include <span>
#include <vector>

namespace gradwire::cli {

/// Of the time: below it, shares differ in healthy jobs too.
inline constexpr double kNoticeableWait = 0.1;

struct WaitedFor {
  double share = 0;      // of the time that the median of the others waits longer than this one
  bool is_slow = false;  // kNoticeableWait or more, and at most half of the ranks are so
};

/// `exposed`: of each rank, the share of its time in exposed communication; what is not finite is not compared.
[[nodiscard]] std::vector<WaitedFor> waited_for(std::span<const double> exposed);

}  // namespace gradwire::cli

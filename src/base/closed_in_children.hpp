// Descriptors whose end tells others that this process has ended: a child that forks off, and calls no exec, must not
// keep them.
#pragma once

namespace gradwire {

/// From here on children close it as they begin. False: there are too many. Any thread.
[[nodiscard]] bool close_in_children(int descriptor) noexcept;
/// Before it is closed here.
void forget_in_children(int descriptor) noexcept;

}  // namespace gradwire

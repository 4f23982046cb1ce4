// Descriptors whose closing tells others that this process has ended. A forked child that calls no exec must not keep
// them open.
#pragma once

namespace gradwire {

/// From here on children close the descriptor when they begin. False: there are too many. Any thread may call this.
[[nodiscard]] bool close_in_children(int descriptor) noexcept;
/// To be called before this process closes the descriptor.
void forget_in_children(int descriptor) noexcept;

}  // namespace gradwire

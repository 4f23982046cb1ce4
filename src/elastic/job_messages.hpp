// What members tell each other beside what membership/membership_message.hpp says. A body begins with its mark, and is
// sealed.
#pragma once

#include <cstddef>
#include <string>

#include "wire/bytes.hpp"

namespace gradwire::session {

// None of membership's bodies begins so.
inline constexpr std::byte kCopyMark{0xC0};  // epoch, step, bytes of the copy, bytes before this piece, the piece
inline constexpr std::byte kFarewellMark{
    0xC1};                                    // whether all ranks of the start are in the world; epoch, step delivered
inline constexpr std::byte kFactsMark{0xC2};  // of a process that waits: a text
inline constexpr std::byte kRefusalMark{0xC3};  // of such a one: why, a text
inline constexpr std::byte kSparesMark{0xC4};   // how many the policy of this process has
inline constexpr std::size_t kMostFacts = 512 << 10;
inline constexpr std::size_t kMostRefusal = 16 << 10;

}  // namespace gradwire::session

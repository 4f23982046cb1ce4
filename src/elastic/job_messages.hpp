// The messages between members that membership/membership_message.hpp does not define. A body begins with its mark, and
// is sealed.
#pragma once

#include <cstddef>
#include <string>

#include "wire/bytes.hpp"

namespace gradwire::session {

// None of membership's bodies begins with one of these marks.
inline constexpr std::byte kCopyMark{0xC0};  // epoch, step, bytes of the copy, bytes before this piece, the piece
inline constexpr std::byte kFarewellMark{
    0xC1};                                    // whether all ranks of the start are in the world; epoch, step delivered
inline constexpr std::byte kFactsMark{0xC2};  // facts of a waiting process: a text
inline constexpr std::byte kRefusalMark{0xC3};  // why a waiting process is refused: a text
inline constexpr std::byte kSparesMark{0xC4};   // number of spares in the policy of this process
inline constexpr std::size_t kMostFacts = 512 << 10;
inline constexpr std::size_t kMostRefusal = 16 << 10;

}  // namespace gradwire::session

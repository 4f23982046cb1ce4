// Constants of the agreement. All times are in beats.
#pragma once

#include <cstddef>

namespace gradwire::membership {

inline constexpr std::size_t kWatched = 2;  // members that each member listens to while nobody is missed
inline constexpr int kBeatsOfDoubt = 4;     // without a sign of life from a process that others call silent
inline constexpr int kBeatsOfBallot = 3;    // before a ballot is sent again to those that have not answered
inline constexpr int kBeatsOfWaiting = 10;  // without a word, after which a waiting process may be gone
inline constexpr int kBeatsOfSleep = 5;  // between two calls; after more, this process was stopped or its clock jumped
inline constexpr int kBeatsOfLeader = 10;    // that another process gets to lead before this one does
inline constexpr int kBeatsOfRumour = 10;    // without a word from a process that others say has ended
inline constexpr int kBeatsBeyondHope = 20;  // after `silent_after`, before an agreement of too few is hopeless

}  // namespace gradwire::membership

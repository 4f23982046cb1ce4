// Times of the agreement, in beats.
#pragma once

#include <cstddef>

namespace gradwire::membership {

inline constexpr std::size_t kWatched = 2;   // members that each one listens to, where nobody is missed
inline constexpr int kBeatsOfDoubt = 4;      // without a sign, of one that others call silent
inline constexpr int kBeatsOfBallot = 3;     // before those that have not answered it get it again
inline constexpr int kBeatsOfWaiting = 10;   // without a word, until one that waited may be gone
inline constexpr int kBeatsOfSleep = 5;      // between two calls; after more it was stopped, or its clock jumped
inline constexpr int kBeatsOfLeader = 10;    // that another one gets before this process leads
inline constexpr int kBeatsOfRumour = 10;    // without a word of one that has ended, as others say
inline constexpr int kBeatsBeyondHope = 20;  // behind `silent_after`, until too few are left to agree

}  // namespace gradwire::membership

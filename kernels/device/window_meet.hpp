// How the ranks of a node wait for each other inside a kernel. Block b of a rank meets block b of every other rank: it
// stores into their windows, tells them by a flag in each, and waits for theirs. Flags count meetings; they have 32
// bits, wrap around, and are compared by their difference, since no two blocks are more than one meeting apart.
//
// Memory: plain stores, a barrier of the block, then the flag with release, polled with acquire, both for the whole
// system. A slot of a window is read before a meeting and written again behind it, so each is there once.
//
// A kernel that waits cannot be ended from outside. So a waiting block looks now and then whether its host or another
// rank has given up, and whether its time is over. A block that gives up tells all ranks which rank was missing. After
// that no block meets another one, and this kernel and all later ones make results of NaN.
#ifndef GRADWIRE_KERNELS_DEVICE_WINDOW_MEET_HPP
#define GRADWIRE_KERNELS_DEVICE_WINDOW_MEET_HPP

#include "kernels/device/frame_words.hpp"
#include "kernels/device/window_job.hpp"

namespace gradwire::kernels {

/// What the threads of a block share about its meetings, in shared memory.
struct Meetings {
  std::uint32_t over;  // not 0: some rank was waited for in vain
  // By hop, a bit for each rank. A meeting clears those of the other hop, which nobody uses then.
  std::uint32_t nonfinite[2];  // what this block has stored for that rank holds NaN or Inf
  std::uint32_t good[2];       // what that rank has sent is as expected
};

GRADWIRE_DEVICE std::uint32_t* word_at(std::uint8_t* window, std::uint32_t offset) {
  return reinterpret_cast<std::uint32_t*>(window + offset);
}

GRADWIRE_DEVICE WindowControl* control_of(const WindowPlaces& places, std::uint32_t rank) {
  return reinterpret_cast<WindowControl*>(places.window[rank]);
}

/// Ranks in the order in which a rank serves the others, so that not all serve the same one at once.
GRADWIRE_DEVICE std::uint32_t rank_after(const WindowShape& shape, std::uint32_t distance) {
  const std::uint32_t rank = shape.rank + distance;
  return rank < shape.ranks ? rank : rank - shape.ranks;
}

/// Begins the meetings of a kernel; ends with a barrier. If a rank has given up before, there are none.
GRADWIRE_DEVICE void begin_meetings(const WindowPlaces& places, Meetings& meetings) {
  if (simt::thread() == 0) {
    const std::uint32_t told = simt::load_relaxed(&control_of(places, places.shape.rank)->told);
    if (told != 0) {
      simt::store_relaxed(&places.words->missing, told);
    }
    meetings.over = told;
    meetings.nonfinite[0] = 0;
    meetings.good[0] = 1U << places.shape.rank;
  }
  simt::sync();
}

/// Ends the meetings of a kernel: there were so many rounds, with a meeting for each hop.
GRADWIRE_DEVICE void end_meetings(const WindowPlaces& places, std::uint32_t rounds) {
  if (simt::thread() == 0) {
    control_of(places, places.shape.rank)->epoch[simt::block()] += rounds * kWindowHops;
  }
}

/// The epoch of a meeting.
GRADWIRE_DEVICE std::uint32_t epoch_of(const WindowPlaces& places, std::uint32_t hop, std::uint32_t round) {
  return control_of(places, places.shape.rank)->epoch[simt::block()] + round * kWindowHops + hop + 1;
}

/// Waits until `peer` has come to the meeting. Returns 0, or 1 + the rank that is missing.
GRADWIRE_DEVICE std::uint32_t wait_for(const WindowPlaces& places, std::uint32_t epoch, std::uint32_t peer) {
  const WindowShape& shape = places.shape;
  const std::uint32_t* flag = word_at(places.window[shape.rank], flag_at(shape, simt::block(), peer));
  const std::uint64_t begun = places.timeout_ns == 0 ? 0 : simt::nanoseconds();
  for (std::uint32_t spins = 1;; ++spins) {
    if (static_cast<std::int32_t>(simt::load_acquire(flag) - epoch) >= 0) {
      return 0;
    }
    if (spins % simt::kSpins == 0) {
      if (simt::load_relaxed(&places.words->abort) != 0) {
        return 1 + shape.rank;
      }
      if (const std::uint32_t told = simt::load_relaxed(&control_of(places, shape.rank)->told); told != 0) {
        return told;
      }
      if (places.timeout_ns != 0 && simt::nanoseconds() - begun > places.timeout_ns) {
        return 1 + peer;
      }
    }
    simt::pause();
  }
}

/// Notes which rank was missing, and tells all ranks.
GRADWIRE_DEVICE void give_up(const WindowPlaces& places, std::uint32_t missing, Meetings& meetings) {
  simt::atomic_or(&meetings.over, 1);
  simt::store_relaxed(&places.words->missing, missing);
  for (std::uint32_t rank = 0; rank < places.shape.ranks; ++rank) {
    simt::store_relaxed(&control_of(places, rank)->told, missing);
  }
}

/// One meeting; called by the whole block, with barriers at both ends. `leave(peer)` runs in one thread for each peer
/// before it is told, `look(peer)` in one thread once that peer has come; it returns whether what came is good.
template <class Leave, class Look>
GRADWIRE_DEVICE void meet(const WindowPlaces& places, std::uint32_t hop, std::uint32_t round, Meetings& meetings,
                          const Leave& leave, const Look& look) {
  const WindowShape& shape = places.shape;
  simt::sync();
  if (simt::thread() == 0) {
    meetings.nonfinite[1 - hop] = 0;
    meetings.good[1 - hop] = 1U << shape.rank;
  }
  const std::uint32_t peer = simt::thread();
  if (peer < shape.ranks && peer != shape.rank) {
    const std::uint32_t epoch = epoch_of(places, hop, round);
    leave(peer);
    simt::store_release(word_at(places.window[peer], flag_at(shape, simt::block(), shape.rank)), epoch);
    if (const std::uint32_t missing = wait_for(places, epoch, peer); missing != 0) {
      give_up(places, missing, meetings);
    } else if (look(peer)) {
      simt::atomic_or(&meetings.good[hop], 1U << peer);
    }
  }
  simt::sync();
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WINDOW_MEET_HPP

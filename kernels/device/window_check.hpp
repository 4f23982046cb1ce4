// The test of windows before they are used: every rank fills its slots of every window with words that nobody else
// makes, meets, and counts the words that have come. A second round writes other words to the same places.
#ifndef GRADWIRE_KERNELS_DEVICE_WINDOW_CHECK_HPP
#define GRADWIRE_KERNELS_DEVICE_WINDOW_CHECK_HPP

#include "kernels/device/window_meet.hpp"

namespace gradwire::kernels {

GRADWIRE_DEVICE std::uint32_t tested_word(std::uint32_t round, std::uint32_t from, std::uint32_t to, std::uint32_t hop,
                                          std::uint32_t index) {
  const std::uint32_t number = ((round * kMostWindowRanks + from) * kMostWindowRanks + to) * kWindowHops + hop;
  std::uint32_t word = (number + 1) * 0x9E3779B9U ^ index * 0x85EBCA6BU;
  word ^= word >> 15;
  return word * 0xC2B2AE35U;
}

GRADWIRE_KERNEL exchange_words(GRADWIRE_PARAMETER(WindowPlaces) places) {
  GRADWIRE_SHARED Meetings meetings;
  const WindowShape& shape = places.shape;
  const std::uint32_t words = tested_words(shape);
  const std::uint32_t first = simt::block() * simt::kThreads + simt::thread();
  const std::uint32_t stride = shape.blocks * simt::kThreads;
  const auto each = [&](const auto& body) {
    for (std::uint32_t hop = 0; hop < kWindowHops; ++hop) {
      for (std::uint32_t distance = 1; distance < shape.ranks; ++distance) {
        for (std::uint32_t i = first; i < words; i += stride) {
          body(hop, rank_after(shape, distance), i);
        }
      }
    }
  };
  const auto nothing = [](std::uint32_t /*peer*/) {};
  const auto good = [](std::uint32_t /*peer*/) { return true; };
  begin_meetings(places, meetings);
  std::uint32_t found = 0;
  for (std::uint32_t round = 0; round < kWindowRounds; ++round) {
    if (meetings.over != 0) {
      break;
    }
    each([&](std::uint32_t hop, std::uint32_t peer, std::uint32_t i) {
      simt::store4(places.window[peer] + slot_at(shape, hop, shape.rank) + std::uint64_t{4} * i,
                   tested_word(round, shape.rank, peer, hop, i));
    });
    meet(places, 0, round, meetings, nothing, good);
    if (meetings.over != 0) {
      break;
    }
    each([&](std::uint32_t hop, std::uint32_t peer, std::uint32_t i) {
      const std::uint8_t* at = places.window[shape.rank] + slot_at(shape, hop, peer) + std::uint64_t{4} * i;
      found += simt::load4(at) == tested_word(round, peer, shape.rank, hop, i) ? 1 : 0;
    });
    meet(places, 1, round, meetings, nothing, good);  // before the next round writes there
  }
  const std::int32_t all = simt::warp_sum(static_cast<std::int32_t>(found));
  if (simt::lane() == 0) {
    simt::atomic_add(&places.words->tested, static_cast<std::uint32_t>(all));
  }
  end_meetings(places, kWindowRounds);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_WINDOW_CHECK_HPP

#include "exchange/stream/window_opening.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "base/current_error.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::chrono::milliseconds kTestTimeout{30'000};
constexpr char kGood = '+';  // a text that begins otherwise says what failed

// A rank tells the others its answer in a step, or why it has none.
struct Reply {
  std::string answer;
  std::string error;

  [[nodiscard]] std::string text() const { return error.empty() ? kGood + answer : '-' + error; }
};

template <class Step>
Reply reply_of(const Step& step) {
  try {
    return {.answer = step(), .error = {}};
  } catch (...) {
    const std::string what = current_error().what();
    return {.answer = {}, .error = what.empty() ? "an unknown error" : what};
  }
}

// Returns the ranks' answers; none if some rank has none, with the reason in `why`.
std::vector<std::string> compare(const Reply& mine, const memory::AllGather& all_gather, std::string& why) {
  std::vector<std::string> all = all_gather(mine.text());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool good = all[rank].starts_with(kGood);
    all[rank].erase(0, 1);
    if (!good) {
      why = "rank " + std::to_string(rank) + ": " + all[rank];
      return {};
    }
  }
  return all;
}

// Returns the blocks that other communicators have reserved on this rank's GPU. Every rank calls it, and all have made
// their reservations before any rank comes here: of two communicators that open windows at the same time, one at least
// sees all reservations of the other. Ranks may share a process, whose sum then has the reservations of them all.
std::uint32_t taken_by_others(const WindowSeat& seat, std::uint32_t own, std::uint32_t sum, const std::string& place,
                              const std::vector<std::string>& places, const memory::AllGather& all_gather) {
  const std::vector<std::string> texts =
      all_gather(seat.process + " " + std::to_string(own) + " " + std::to_string(sum));
  std::map<std::string, std::uint32_t> by_process;
  std::uint32_t own_of_all = 0;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (places[rank] == place) {
      std::istringstream text(texts[rank]);
      std::string process;
      std::uint32_t reserved = 0;
      std::uint32_t reserved_in_process = 0;
      text >> process >> reserved >> reserved_in_process;
      own_of_all += reserved;
      by_process[process] = std::max(by_process[process], reserved_in_process);
    }
  }
  std::uint32_t all = 0;
  for (const auto& [process, blocks] : by_process) {
    all += blocks;
  }
  return all - own_of_all;
}

// Returns the number of blocks of each rank's kernels, which is the same on all ranks; 0: they do not fit. Every rank
// calls it behind the reservations of all.
std::uint32_t agree_on_blocks(WindowSource& source, const WindowSeat& seat, std::uint32_t reserved,
                              const std::string& place, const std::vector<std::string>& places,
                              const memory::AllGather& all_gather) {
  const auto sharing = static_cast<std::uint32_t>(std::count(places.begin(), places.end(), place));
  const std::uint32_t taken = taken_by_others(seat, reserved, source.reserved().load(), place, places, all_gather);
  std::uint32_t blocks = std::min(window_blocks(seat.blocks, sharing, taken), reserved);
  for (const std::string& fits : all_gather(std::to_string(blocks))) {
    blocks = std::min(blocks, static_cast<std::uint32_t>(std::stoul(fits)));
  }
  return blocks;
}

bool passes(WindowSource& source, const WindowCalls& calls, std::chrono::milliseconds timeout) {
  kernels::WindowPlaces places = calls.places();
  const std::chrono::milliseconds patience = timeout.count() == 0 ? kTestTimeout : std::min(timeout, kTestTimeout);
  places.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(patience).count());
  source.test(places);
  return std::atomic_ref(places.words->tested).load() == kernels::all_tested_words(places.shape);
}

}  // namespace

std::unique_ptr<WindowCalls> open_windows(WindowSource& source, int rank, const memory::AllGather& all_gather,
                                          std::chrono::milliseconds timeout, std::string& why) {
  WindowSeat seat;
  std::unique_ptr<BlockReservation> reservation;
  const Reply place = reply_of([&] {
    seat = source.prepare();
    const std::uint32_t most = window_blocks(seat.blocks, 1);
    reservation =
        std::make_unique<BlockReservation>(source.reserved(), seat.allowed != 0 ? std::min(most, seat.allowed) : most);
    return seat.host + " " + seat.device;
  });
  const std::vector<std::string> places = compare(place, all_gather, why);
  if (places.empty()) {
    return nullptr;
  }
  const auto here = [&](const std::string& text) { return text.starts_with(seat.host + " "); };
  if (!std::all_of(places.begin(), places.end(), here)) {
    why = kSeveralHosts;
    return nullptr;
  }
  if (places.size() < 2 || places.size() > kernels::kMostWindowRanks) {
    why = "windows are for 2 to " + std::to_string(kernels::kMostWindowRanks) + " ranks";
    return nullptr;
  }
  const std::uint32_t blocks = agree_on_blocks(source, seat, reservation->blocks(), place.answer, places, all_gather);
  if (blocks == 0) {
    why = "the kernels of all ranks that share a GPU do not fit on it at once";
    return nullptr;
  }
  reservation->shrink(blocks);
  const kernels::WindowShape shape{.ranks = static_cast<std::uint32_t>(places.size()),
                                   .rank = static_cast<std::uint32_t>(rank),
                                   .blocks = blocks,
                                   .slot_bytes = kWindowSlotBytes};
  std::unique_ptr<memory::PeerWindows> windows = source.map(kernels::window_bytes(shape), all_gather, why);
  if (windows == nullptr) {
    return nullptr;
  }
  auto calls =
      std::make_unique<WindowCalls>(std::move(windows), shape, source.words(), timeout, std::move(reservation));
  const Reply tested = reply_of([&] {
    return std::string(passes(source, *calls, timeout) ? "" : "did not find in its window what others wrote to it");
  });
  const std::vector<std::string> verdicts = compare(tested, all_gather, why);
  const auto bad =
      std::find_if(verdicts.begin(), verdicts.end(), [](const std::string& text) { return !text.empty(); });
  if (bad != verdicts.end()) {
    why = "rank " + std::to_string(bad - verdicts.begin()) + " " + *bad;
  }
  return verdicts.empty() || bad != verdicts.end() ? nullptr : std::move(calls);
}

}  // namespace gradwire::exchange

#include "exchange/stream/window_opening.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "base/current_error.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::chrono::milliseconds kTestTimeout{30'000};
constexpr char kGood = '+';  // a text that begins otherwise says what failed

// What a rank tells the others of a step: its answer, or why it has none.
struct Said {
  std::string answer;
  std::string trouble;

  [[nodiscard]] std::string text() const { return trouble.empty() ? kGood + answer : '-' + trouble; }
};

template <class Step>
Said attempt(const Step& step) {
  try {
    return {.answer = step(), .trouble = {}};
  } catch (...) {
    const std::string what = current_error().what();
    return {.answer = {}, .trouble = what.empty() ? "an unknown error" : what};
  }
}

// Returns the ranks' answers; none if some rank has none, with the reason in `why`.
std::vector<std::string> compare(const Said& said, const memory::AllGather& all_gather, std::string& why) {
  std::vector<std::string> all = all_gather(said.text());
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

// Returns the blocks of all other windows on this rank's GPU. Ranks may share a process. Every rank calls it.
std::uint32_t taken_on(const WindowSeat& seat, const std::string& place, const std::vector<std::string>& places,
                       const memory::AllGather& all_gather) {
  const std::vector<std::string> said = all_gather(seat.process + " " + std::to_string(seat.taken));
  std::map<std::string, std::uint32_t> by_process;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (places[rank] == place) {
      const std::size_t space = said[rank].find(' ');
      by_process[said[rank].substr(0, space)] = static_cast<std::uint32_t>(std::stoul(said[rank].substr(space + 1)));
    }
  }
  std::uint32_t taken = 0;
  for (const auto& [process, blocks] : by_process) {
    taken += blocks;
  }
  return taken;
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
  const Said place = attempt([&] {
    seat = source.prepare();
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
  const auto sharing = static_cast<std::uint32_t>(std::count(places.begin(), places.end(), place.answer));
  std::uint32_t blocks = window_blocks(seat.blocks, sharing, taken_on(seat, place.answer, places, all_gather));
  blocks = seat.allowed != 0 ? std::min(blocks, seat.allowed) : blocks;
  for (const std::string& fits : all_gather(std::to_string(blocks))) {
    blocks = std::min(blocks, static_cast<std::uint32_t>(std::stoul(fits)));
  }
  if (blocks == 0) {
    why = "the kernels of all ranks that share a GPU do not fit on it at once";
    return nullptr;
  }
  const kernels::WindowShape shape{.ranks = static_cast<std::uint32_t>(places.size()),
                                   .rank = static_cast<std::uint32_t>(rank),
                                   .blocks = blocks,
                                   .slot_bytes = kWindowSlotBytes};
  std::unique_ptr<memory::PeerWindows> windows = source.map(kernels::window_bytes(shape), all_gather, why);
  if (windows == nullptr) {
    return nullptr;
  }
  auto calls = std::make_unique<WindowCalls>(std::move(windows), shape, source.words(), timeout);
  const Said tested = attempt([&] {
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

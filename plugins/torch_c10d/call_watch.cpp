#include "plugins/torch_c10d/call_watch.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::torch_c10d {
namespace {

using std::chrono::milliseconds;

// One key for each way: the latest call that somebody waits in. Older ones are overwritten, so the store never grows.
const char* key_of(CallWatch::Way way) { return way == CallWatch::Way::compressed ? "late/compressed" : "late/passed"; }

CallWatch::Way other_than(CallWatch::Way way) {
  return way == CallWatch::Way::compressed ? CallWatch::Way::passed : CallWatch::Way::compressed;
}

}  // namespace

CallWatch::CallWatch(transport::Rendezvous store, const Options& options,
                     std::function<void(const std::string& why)> abort)
    : store_(std::move(store)), options_(options), abort_(std::move(abort)), thread_([this] { run(); }) {}

CallWatch::~CallWatch() { stop(); }

void CallWatch::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void CallWatch::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    throw Error(ErrorCode::mismatch, failure_);
  }
}

std::uint64_t CallWatch::begin(Way way, std::function<std::string()> describe,
                               std::function<void(const std::string& why)> fail) {
  check();
  const std::lock_guard lock(mutex_);
  calls_.emplace(next_, Call{way, Clock::now(), std::move(describe), std::move(fail)});
  return next_++;
}

void CallWatch::end(std::uint64_t number) noexcept {
  decltype(calls_)::node_type ended;  // what it holds is destroyed without the lock
  const std::lock_guard lock(mutex_);
  ended = calls_.extract(number);
}

// Of each way the first call that is late: those behind it may only wait for it.
std::vector<CallWatch::Late> CallWatch::late_calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<Late> late;
  std::array<bool, 2> seen{};
  for (const auto& [number, call] : calls_) {
    bool& known = seen[static_cast<std::size_t>(call.way)];
    if (!known && Clock::now() - call.begin >= options_.patience) {
      late.push_back({number, call.way, call.describe()});
    }
    known = true;
  }
  return late;
}

// Tells the store of a late call, and looks for ranks that wait in the same one the other way. What is wrong, or
// nothing.
std::string CallWatch::compare(const Late& mine) {
  const std::string here = "rank " + std::to_string(options_.rank) + ": " + mine.text;
  const std::string number = std::to_string(mine.number);
  store_.put(key_of(mine.way), number + " " + here);
  std::string found;
  try {
    found = store_.get(key_of(other_than(mine.way)), milliseconds(0));
  } catch (const std::exception&) {
    return {};  // nobody waits there
  }
  const std::size_t space = found.find(' ');
  if (space == std::string::npos || found.substr(0, space) != number) {
    return {};
  }
  const std::string there = found.substr(space + 1);
  const bool compressed_here = mine.way == Way::compressed;
  return "ranks differ in reduction " + number + " of this process group: " + (compressed_here ? here : there) +
         ", which is compressed, but " + (compressed_here ? there : here) +
         ", which passes; give every rank tensors of the same size and type";
}

void CallWatch::give_up(const std::string& why) {
  decltype(calls_) calls;
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    calls = calls_;
  }
  abort_(why);
  for (const auto& [number, call] : calls) {
    if (call.fail) {
      call.fail(why);
    }
  }
}

void CallWatch::run() {
  constexpr milliseconds kShortest{1000};
  constexpr milliseconds kLongest{10000};  // a rank may be late by hours, and a store has one thread for all ranks
  milliseconds pause = std::min(kShortest, options_.patience);
  std::optional<std::uint64_t> told;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (stopping_.wait_for(lock, pause, [this] { return stop_; })) {
        return;
      }
    }
    const std::vector<Late> late = late_calls();
    const bool again = !late.empty() && told == late.front().number;
    pause = again ? std::min(2 * pause, kLongest) : std::min(kShortest, options_.patience);
    told = late.empty() ? std::nullopt : std::optional(late.front().number);
    try {
      for (const Late& call : late) {
        if (const std::string why = compare(call); !why.empty()) {
          give_up(why);
          return;
        }
      }
    } catch (const std::exception&) {
      continue;  // the store is gone, as at the end of a job; whoever waits hears of that elsewhere
    }
  }
}

}  // namespace gradwire::torch_c10d

// The base of transports over another transport: each posted operation has an entry with operations of its own for the
// inner transport, and is done when the decorator says so.
#pragma once

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/transport.hpp"
#include "transport/operations.hpp"

namespace gradwire::transport {

/// The base of a decorator's entries.
struct DecoratedOperation {
  Operation* operation = nullptr;  // the caller's
  Operation inner;                 // carries the caller's bytes
  Operation side;                  // a second message, where the decorator sends one

  [[nodiscard]] bool under_way() const { return inner.pending() || side.pending(); }
};

template <class Entry>
class Decorator : public Transport {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  ~Decorator() override {
    while (!entries_.empty()) {
      give_up(entries_.begin());
    }
  }

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_->world_size(); }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return inner_->nodes(); }
  [[nodiscard]] std::optional<int> failed_peer() const noexcept override { return inner_->failed_peer(); }
  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }
  void abort(const Error& error) noexcept override { inner_->abort(error); }

  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override { return inner_->ask(limit); }

  bool progress(std::chrono::microseconds wait) override {
    const Time deadline = now() + bounded(wait);
    inner_->progress(std::chrono::microseconds(0));
    for (;;) {
      const Time time = now();
      if (step(time)) {
        return true;
      }
      if (entries_.empty() || time >= deadline) {
        return false;
      }
      const auto left = std::chrono::ceil<std::chrono::microseconds>(next_event(deadline) - time);
      if (std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) { return entry->under_way(); })) {
        inner_->progress(left);
      } else {
        std::this_thread::sleep_for(std::min(left, kNap));
        inner_->progress(std::chrono::microseconds(0));
      }
    }
  }

  bool cancel(Operation& operation) noexcept override {
    if (!operation.pending() || operation.handle == nullptr) {
      return true;
    }
    const bool over = give_up(std::find_if(entries_.begin(), entries_.end(),
                                           [&](const auto& entry) { return entry->operation == &operation; }));
    operation.handle = nullptr;
    operation.state = Operation::State::idle;
    return over;
  }

 protected:
  using Entries = std::list<std::unique_ptr<Entry>>;

  explicit Decorator(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  /// The clock of step() and next_event().
  [[nodiscard]] virtual Time now() const { return Clock::now(); }
  /// Starts operations that are due and completes those that have ended; returns whether any was completed.
  virtual bool step(Time now) = 0;
  /// The earliest moment before `limit` at which step() has something to do that no inner operation announces.
  [[nodiscard]] virtual Time next_event(Time limit) const = 0;

  Entry& add(Operation& operation) {
    entries_.push_back(std::make_unique<Entry>());
    entries_.back()->operation = &operation;
    operation.handle = entries_.back().get();
    return *entries_.back();
  }

  /// Runs `post`, which hands an operation's parts to the inner transport; takes the operation back if that throws.
  template <class Post>
  void hand_over(Operation& operation, Post post) {
    try {
      post();
    } catch (...) {
      cancel(operation);
      throw;
    }
  }

  /// Starts the inner receive of an operation that begin_receive() has filled in.
  void post_inner_receive(Entry& entry) {
    const Operation& outer = *entry.operation;
    const std::span<std::byte> data(outer.data, outer.bytes);
    outer.at_most ? inner_->post_receive_at_most(entry.inner, outer.peer, outer.tag, data)
                  : inner_->post_receive(entry.inner, outer.peer, outer.tag, data);
  }

  /// Completes and removes all entries for which `is_over` is true; returns whether there were any.
  template <class Predicate>
  bool complete_if(Predicate is_over) {
    return std::erase_if(entries_, [&](const std::unique_ptr<Entry>& entry) {
             if (!is_over(*entry)) {
               return false;
             }
             entry->operation->state = Operation::State::done;
             entry->operation->handle = nullptr;
             if (entry->operation->at_most) {
               entry->operation->bytes = entry->inner.bytes;
             }
             counters_.count(*entry->operation, world_size());
             return true;
           }) > 0;
  }

  std::shared_ptr<Transport> inner_;
  Entries entries_;  // in the order of posting

 private:
  // While no inner operation is under way, an abort shows only when the inner transport is polled.
  static constexpr std::chrono::microseconds kNap{500};

  /// Removes the entry without touching the caller's operation; leaks it where the inner transport may still use it.
  bool give_up(typename Entries::iterator at) noexcept {
    std::unique_ptr<Entry> entry = std::move(*at);
    entries_.erase(at);
    const bool inner = inner_->cancel(entry->inner);
    const bool side = inner_->cancel(entry->side);
    if (!inner || !side) {
      static_cast<void>(entry.release());
    }
    return inner;
  }

  Counters counters_;
};

}  // namespace gradwire::transport

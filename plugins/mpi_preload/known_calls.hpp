// Calls that are known to pass for a while: they are passed on and counted, without further checks.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/mutex.hpp"
#include "drop_in/ledger.hpp"
#include "drop_in/router.hpp"

namespace gradwire::mpi_preload {

/// The key by which calls are told apart, with the job's handles and counts.
struct CallKey {
  choice::Function function = choice::Function::other;
  std::uint64_t type = 0;
  std::uint64_t op = 0;
  std::int64_t count = 0;

  CallKey() = default;
  CallKey(choice::Function of, MPI_Datatype datatype, MPI_Op operation, std::int64_t elements) noexcept
      : function(of),
        type((std::uint64_t)datatype),  // NOLINT: a pointer in one library, an int in the other
        op((std::uint64_t)operation),   // NOLINT
        count(elements) {}
  friend auto operator<=>(const CallKey&, const CallKey&) = default;  // NOLINT(modernize-use-nullptr): false
};

/// A number that one thread changes while another may read the new or the old value.
template <typename Number>
void add_to(Number& number, Number more) noexcept {
  std::atomic_ref(number).store(number + more, std::memory_order_relaxed);
}
template <typename Number>
Number peek_at(const Number& number) noexcept {
  return std::atomic_ref(const_cast<Number&>(number)).load(std::memory_order_relaxed);  // NOLINT: only read
}

/// Calls with one key that passed for one reason.
struct KnownCall {
  CallKey key;
  drop_in::CallClass what;
  std::optional<choice::ChoiceClass> choice;
  std::uint64_t bytes = 0;  // bytes of one call
  std::uint64_t calls = 0;
  std::uint64_t timed = 0;  // number of calls that were timed
  double seconds = 0;       // time of these
  std::uint64_t seen = 0;   // number of calls that were given to observing
  /// The number of further calls that pass without asking; AutoCall's, or its own.
  std::uint64_t* left = nullptr;
  std::uint64_t own_remaining = 0;
};

/// The known calls of one communicator, whose calls do not overlap.
class KnownCalls {
 public:
  /// Counts the call, if it is known to pass.
  [[nodiscard]] bool pass(const CallKey& key) noexcept {
    KnownCall* known = slots_[slot_of(key)];
    if (known == nullptr || !(known->key == key) || *known->left == 0) {
      return false;
    }
    --*known->left;
    add_to<std::uint64_t>(known->calls, 1);
    ++calls_;
    return true;
  }
  /// Counts a call that was routed to pass, and remembers its key for the next ones. Null where there are too many; the
  /// call is not counted then.
  KnownCall* remember(const CallKey& key, std::uint64_t bytes, const drop_in::Router::Route& route);

  using Observe = void (*)(const drop_in::CallClass& what, double seconds, std::uint64_t calls) noexcept;
  /// Gives `observe` the calls that it has not got yet, each with the mean time of the timed ones.
  void tell_unseen(Observe observe) noexcept;
  /// Drops all known calls, once the communicator's calls are no longer made here.
  void forget() noexcept;

  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  using Measured = std::function<std::optional<drop_in::CallTotals::Measured>(const choice::ChoiceClass&)>;
  /// Adds all counts to the ledger. Any thread.
  void tell(drop_in::Ledger& ledger, int communicator_size, const Measured& measured) const;

  static constexpr std::size_t kMost = 2000;
  static constexpr std::uint64_t kUnasked = 63;  // number of calls that pass after a decision that lasts

 private:
  static constexpr std::size_t kSlots = 64;
  [[nodiscard]] static std::size_t slot_of(const CallKey& key) noexcept {
    const auto count = static_cast<std::uint64_t>(key.count);
    return (count ^ (count >> 6) ^ (count >> 12) ^ static_cast<std::uint64_t>(key.function)) % kSlots;
  }

  mutable Mutex mutex_;
  // The mutex guards the set of known calls; the thread that makes a call counts it without.
  std::map<std::pair<CallKey, choice::Reason>, KnownCall> all_ GUARDED_BY(mutex_);
  std::array<KnownCall*, kSlots> slots_{};
  std::uint64_t calls_ = 0;
};

}  // namespace gradwire::mpi_preload

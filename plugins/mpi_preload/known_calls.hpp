// Calls whose way is known for a while: they are passed on and counted, and nothing else is looked at.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "drop_in/ledger.hpp"
#include "drop_in/router.hpp"

namespace gradwire::mpi_preload {

/// What tells calls apart; handles and counts as the job gave them.
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

/// A number that one thread changes while another may read it, as it is or as it was.
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
  std::uint64_t bytes = 0;  // of a call
  std::uint64_t calls = 0;
  std::uint64_t timed = 0;  // of these
  double seconds = 0;       // those took
  std::uint64_t seen = 0;   // that observing has been told of
  /// So many more calls need not be asked for; AutoCall's, or its own.
  std::uint64_t* left = nullptr;
  std::uint64_t own_left = 0;
};

/// Those of one communicator, whose calls do not overlap.
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
  /// Counts a call that was routed to pass, and knows the next ones. Null where there are too many; then it is not
  /// counted.
  KnownCall* remember(const CallKey& key, std::uint64_t bytes, const drop_in::Router::Route& route);

  using Observe = void (*)(const drop_in::CallClass& what, double seconds, std::uint64_t calls) noexcept;
  /// Tells `observe` of the calls that it has not been told of yet, each with the mean time of those that were timed.
  void tell_unseen(Observe observe) noexcept;
  /// All of them: for when their calls are no longer made here.
  void forget() noexcept;

  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  using Measured = std::function<std::optional<drop_in::CallTotals::Measured>(const choice::ChoiceClass&)>;
  /// Adds all to the ledger; any thread may.
  void tell(drop_in::Ledger& ledger, int communicator_size, const Measured& measured) const;

  static constexpr std::size_t kMost = 2000;
  static constexpr std::uint64_t kUnasked = 63;  // calls after one that lasts

 private:
  static constexpr std::size_t kSlots = 64;
  [[nodiscard]] static std::size_t slot_of(const CallKey& key) noexcept {
    const auto count = static_cast<std::uint64_t>(key.count);
    return (count ^ (count >> 6) ^ (count >> 12) ^ static_cast<std::uint64_t>(key.function)) % kSlots;
  }

  mutable std::mutex mutex_;  // of which calls there are
  std::map<std::pair<CallKey, choice::Reason>, KnownCall> all_;
  std::array<KnownCall*, kSlots> slots_{};
  std::uint64_t calls_ = 0;
};

}  // namespace gradwire::mpi_preload

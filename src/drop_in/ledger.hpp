// The outcome of the calls by class: the numbers behind the report.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/mutex.hpp"
#include "drop_in/calls.hpp"
#include "drop_in/choice_file.hpp"
#include "drop_in/observed.hpp"

namespace gradwire::drop_in {

/// Calls that are counted together.
struct CallClass {
  Function function = Function::other;
  std::optional<DType> dtype = {};
  std::string op = {};      // "sum", "max", ...; empty: several
  std::uint64_t count = 0;  // elements of the larger buffer; 0: several
  int communicator_size = 0;
  std::optional<std::uint64_t> order = {};  // place in the step, once that is known
  std::string name = {};                    // set by gradwire_name
  std::string codec = {};                   // empty if none is used
  Reason reason = Reason::none;

  friend bool operator<(const CallClass& a, const CallClass& b) {
    const auto key = [](const CallClass& c) {
      return std::tie(c.function, c.communicator_size, c.count, c.dtype, c.op, c.order, c.name, c.codec, c.reason);
    };
    return key(a) < key(b);
  }
};

struct CallTotals {
  /// Seconds of a call by the latest comparison, if codec = "auto" chooses.
  struct Measured {
    double passed = 0;
    double compressed = 0;
  };
  std::uint64_t calls = 0;
  std::uint64_t compressed_calls = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_dense = 0;                    // what a perfect uncompressed algorithm sends
  std::uint64_t bytes_sent = 0;                     // for a passed call: bytes_dense
  double seconds = 0;                               // inside calls; 0 for calls that are too small to be timed
  std::optional<Measured> measured = std::nullopt;  // at the latest comparison
  std::string algorithm = {};     // of the latest all-reduce, and why if it was chosen: "one_shot: latency rules"
  std::uint64_t lossy_calls = 0;  // compressed calls whose result the job got from a lossy codec
  /// The largest relative error (norm of the difference over norm of the sum) of the calls that were compared with an
  /// exact sum, whole or in samples. No value if no call was.
  std::optional<double> largest_error = std::nullopt;

  void add(const CallTotals& other);
  [[nodiscard]] double ratio() const;
};

/// Returns one rank's share of the bytes of a perfect algorithm.
[[nodiscard]] CallTotals passed_totals(Function function, std::uint64_t calls, std::uint64_t bytes, int world_size);

/// The warning that a drop-in prints once if Ledger::nonfinite() is true.
inline constexpr std::string_view kNonfiniteWarning =
    "NaN or Inf in a sum that was compressed: with int8 and below it spreads over a block of up to 256 elements, or a "
    "tile of 4096 with topk, on all ranks alike; this is logged once";

/// Any thread may add to it. A process has one ledger.
class Ledger {
 public:
  using Classes = std::map<CallClass, CallTotals>;

  /// Above kMostClasses, counts and orders are no longer told apart.
  void add(const CallClass& what, const CallTotals& totals);
  void count_reset() {
    const MutexLock lock(mutex_);
    ++resets_;
  }
  /// Counts a call whose host had to wait until a device had come to the ranks' agreement.
  void count_wait() noexcept { ++waits_; }
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }
  /// Notes that a compressed call had NaN or Inf.
  void count_nonfinite() { nonfinite_ = true; }
  [[nodiscard]] bool nonfinite() const noexcept { return nonfinite_; }
  /// Warnings that a process prints once.
  enum class Warning : std::uint8_t { lossy, small_values };
  /// Whether this is the first call for that warning.
  [[nodiscard]] bool first(Warning what) noexcept { return !warned_[static_cast<std::size_t>(what)].exchange(true); }
  /// Adds the choices of codec = "auto" on a communicator.
  void add_choices(const CommunicatorName& communicator, const Choices& choices) {
    const MutexLock lock(mutex_);
    choices_.try_emplace(communicator, choices);
  }
  /// Numbers the communicators that are called alike but for `number`, in the order of the calls.
  [[nodiscard]] CommunicatorName number_communicator(CommunicatorName name) {
    const MutexLock lock(mutex_);
    name.number = 0;
    std::uint32_t& numbered = named_[name];
    name.number = numbered++;
    return name;
  }
  [[nodiscard]] ChoicesOfJob choices() const {
    const MutexLock lock(mutex_);
    return choices_;
  }
  /// Adds what an observing process saw; to be called once, after its last call.
  void add_observed(const Observed& observed) {
    const MutexLock lock(mutex_);
    observed_.add(observed);
  }
  [[nodiscard]] Observed observed() const {
    const MutexLock lock(mutex_);
    return observed_;
  }
  [[nodiscard]] Classes classes() const {
    const MutexLock lock(mutex_);
    return classes_;
  }
  /// Whether any call was counted.
  [[nodiscard]] bool any() const {
    const MutexLock lock(mutex_);
    return !classes_.empty();
  }
  /// How often a known step changed.
  [[nodiscard]] std::uint64_t resets() const {
    const MutexLock lock(mutex_);
    return resets_;
  }

  /// Returns the numbers as a text that another rank can merge.
  [[nodiscard]] std::string to_text() const;
  /// Adds the numbers in another rank's to_text().
  void merge(const std::string& text);

  static constexpr std::size_t kMostClasses = 2000;

 private:
  mutable Mutex mutex_;
  Classes classes_ GUARDED_BY(mutex_);
  ChoicesOfJob choices_ GUARDED_BY(mutex_);
  std::map<CommunicatorName, std::uint32_t> named_ GUARDED_BY(mutex_);  // how many so far
  Observed observed_ GUARDED_BY(mutex_);
  std::uint64_t resets_ GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> waits_ = 0;
  std::atomic<bool> nonfinite_ = false;
  std::array<std::atomic<bool>, 2> warned_{};
};

/// The parts of a report besides the classes.
struct ReportHead {
  int world_size = 1;
  std::string implementation = {};  // "Open MPI 4.1.4"
  bool dry_run = false;
  std::string policy = {};
  std::string disabled = {};  // why it is disabled, or empty
  std::string note = {};      // such as that some ranks' numbers are missing; or empty
  bool has_session = false;   // the program itself uses the library, whose messages are no such calls
  bool has_key = false;       // the job has a key, so the calls that passed in clear text are told apart
};

/// The report file: one JSON object.
[[nodiscard]] std::string report_json(const ReportHead& head, const Ledger& ledger);
/// Writes that file. Returns what went wrong, for people, if anything did.
[[nodiscard]] std::optional<std::string> write_report(const std::string& file, const std::string& json);
/// Returns the status while the job runs: "120 calls compressed, 12.1MiB sent for 48MiB, ratio 3.97".
[[nodiscard]] std::string status_text(const Ledger& ledger);
/// One line for people.
[[nodiscard]] std::string report_summary(const ReportHead& head, const Ledger& ledger);

}  // namespace gradwire::drop_in

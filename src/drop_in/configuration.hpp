// The settings of this process from its environment, and those that ranks exchange before they compress on a
// communicator.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "drop_in/choice_file.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// What a process does with the job's calls.
enum class Mode : std::uint8_t {
  disabled,     ///< Passes them without looking (GRADWIRE_DISABLE=1, or an environment with an error).
  observing,    ///< Passes and times them. The default, and what a dry run does: no bit of the job changes.
  compressing,  ///< A codec or a policy was named, by which it compresses.
};

/// Returns GRADWIRE_TIMEOUT, if it is set. Throws Error(invalid_argument) for a bad value.
[[nodiscard]] std::optional<std::chrono::milliseconds> timeout_of_environment();

struct Configuration {
  Mode mode = Mode::observing;
  /// While observing, it chooses the codecs that are sampled and the calls that a dry run counts.
  plan::CallPlanner planner{Policy()};
  std::optional<ChoicesOfJob> script;    // an earlier job's choices for codec = "auto"; none: it measures
  std::optional<std::string> recording;  // the file for its choices
  std::uint32_t number_in_job = 0;       // over NCCL, where choices are recorded or followed: this process's
  std::string disabled;                  // why this rank passes all calls; empty: it does not
  std::string key_check;                 // check value of the key by which compressed calls are encrypted, or empty
  bool dry_run = false;                  // only counts what would be compressed
  bool quiet = false;                    // no summary
  bool tells_status = false;             // logs its status now and then
  bool node_kernel = true;               // over NCCL the one kernel inside a node may be timed
  bool node_kernel_asked = false;        // a line says why it is off, also under a named codec
  bool raise_threads = false;            // initialise MPI with MPI_THREAD_MULTIPLE even if the job asks for less
  std::optional<std::string> report;
  /// GRADWIRE_TIMEOUT: how long a compressed call waits for another rank. No value: as long as the library would.
  std::optional<std::chrono::milliseconds> timeout;

  /// Over NCCL, without `timeout`: how long a host waits for what other ranks have to answer.
  std::chrono::milliseconds answer_limit{std::chrono::minutes(30)};

  /// GRADWIRE_WARN_AFTER: how long a call waits for another rank before a line names that rank, and between such lines.
  std::chrono::milliseconds warn_after{std::chrono::minutes(1)};

  [[nodiscard]] bool observes() const noexcept { return mode == Mode::observing; }
  [[nodiscard]] bool compresses() const noexcept { return mode == Mode::compressing; }
  /// `timeout`, or longer than any job runs.
  [[nodiscard]] std::chrono::milliseconds longest_wait() const noexcept;
  /// `timeout`, or `answer_limit`.
  [[nodiscard]] std::chrono::milliseconds longest_answer() const noexcept { return timeout.value_or(answer_limit); }

  /// What becomes of the job's key: the calls that are compressed are encrypted with it, or all calls pass.
  enum class KeyUse : std::uint8_t { passes, encrypts };

  /// Reads the environment. A mistake there (such as a bad policy file) disables compression, and `disabled` gives the
  /// reason: a job must not end because of us. With `measures` the caller compares the values of calls that it
  /// makes both ways, so `max_error` is allowed; else it is refused, and each process has a file of choices of its own,
  /// with ".nccl-" and the process's number behind the name.
  [[nodiscard]] static Configuration read(bool measures, KeyUse key = KeyUse::passes);

  /// The fingerprint of the policy alone.
  [[nodiscard]] std::string policy_fingerprint() const;
};

/// One rank's settings, as the bytes that ranks exchange. A rank itself prints texts that are too long for it.
struct RankSettings {
  std::array<char, 4> magic{};
  Mode mode = Mode::disabled;
  std::uint8_t dry_run = 0;
  std::uint8_t requests = 0;  // this rank can compress calls that return a request
  std::uint8_t reserved = 0;
  std::array<char, 20> fingerprint{};  // of policy and version; zero-terminated as the other
  std::array<char, 36> text{};         // where the policy came from, or why it is disabled; may be cut off

  [[nodiscard]] static RankSettings of(const Configuration& configuration);
};
static_assert(sizeof(RankSettings) == 64, "no padding: it travels as bytes");

/// The result when all ranks have answered, the same on every rank.
struct AgreedSettings {
  Mode mode = Mode::disabled;  // of all ranks; disabled if some rank is, or if ranks differ
  bool disabled = false;
  bool ranks_differ = false;
  bool one_process = false;  // several of the ranks are in one process; only asked for devices
  bool dry_run = false;
  bool requests = false;         // every rank can compress calls that return a request
  std::string disabled_because;  // why no call is compressed; empty if there is no reason
  int teller = 0;                // the rank that knows most about the reason
  /// A text for one rank to print; empty if there is nothing to report.
  [[nodiscard]] std::string warning() const;
};
/// `all` is by rank. If `mine` is given and this rank is the first disabled one, the reason is given in full.
[[nodiscard]] AgreedSettings agree(std::span<const RankSettings> all, int rank = 0,
                                   const Configuration* mine = nullptr);

/// "ranks 1, 4 and 7", at most eight of them by number.
[[nodiscard]] std::string name_ranks(std::span<const int> ranks);

}  // namespace gradwire::drop_in

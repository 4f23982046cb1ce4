// What this process was told through its environment, and what ranks tell each other of it before anything is
// compressed on a communicator.
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
  disabled,     ///< Passes them and looks at nothing (GRADWIRE_DISABLE=1, or an environment that cannot be read).
  observing,    ///< Passes and times them. The default, and what a dry run does: no bit of the job changes.
  compressing,  ///< A codec or a policy was named: compresses what that says.
};

struct Configuration {
  Mode mode = Mode::observing;
  /// While observing: what is sampled, and what a dry run counts.
  plan::CallPlanner planner{Policy()};
  std::optional<ChoicesOfJob> script;    // what codec = "auto" is to choose, from an earlier job; none: it measures
  std::optional<std::string> recording;  // the file where what it chooses is to be kept
  std::string disabled;                  // why this rank passes everything through; empty: it does not
  bool dry_run = false;                  // only counts what would be compressed
  bool quiet = false;                    // no summary
  bool tells_status = false;             // now and then
  bool raise_threads = false;            // MPI is to be initialised with MPI_THREAD_MULTIPLE whatever the job asks for
  std::optional<std::string> report;
  /// GRADWIRE_TIMEOUT: how long a compressed call waits for another rank. None: as long as the library would.
  std::optional<std::chrono::milliseconds> timeout;

  /// GRADWIRE_WARN_AFTER: how long a call waits for another rank before a line says for whom, and again after each.
  std::chrono::milliseconds warn_after{std::chrono::minutes(1)};

  [[nodiscard]] bool observes() const noexcept { return mode == Mode::observing; }
  [[nodiscard]] bool compresses() const noexcept { return mode == Mode::compressing; }
  /// `timeout`, or longer than any job runs.
  [[nodiscard]] std::chrono::milliseconds longest_wait() const noexcept;

  /// From the environment. What is wrong there (a bad policy file) disables, and is told in `disabled`: a job does not
  /// end because of us. `measures`: calls can be compared both ways, so codec = "auto" is allowed; else it is refused.
  [[nodiscard]] static Configuration read(bool measures);

  /// Of the policy alone.
  [[nodiscard]] std::string policy_fingerprint() const;
};

/// What one rank says of itself: the bytes that travel. What is too long for it, the rank tells itself.
struct RankSettings {
  std::array<char, 4> magic{};
  Mode mode = Mode::disabled;
  std::uint8_t dry_run = 0;
  std::uint8_t requests = 0;  // calls that return a request can be compressed here
  std::uint8_t reserved = 0;
  std::array<char, 20> fingerprint{};  // of policy and version; zero-terminated as the other
  std::array<char, 36> text{};         // where the policy came from, or why it is disabled; may be cut off

  [[nodiscard]] static RankSettings of(const Configuration& configuration);
};
static_assert(sizeof(RankSettings) == 64, "no padding: it travels as bytes");

/// What follows when all have answered. The same on every rank.
struct Agreement {
  Mode mode = Mode::disabled;  // of all ranks; disabled where some rank is, or where ranks differ
  bool disabled = false;
  bool ranks_differ = false;
  bool one_process = false;  // several of them are in one: asked for devices only
  bool dry_run = false;
  bool requests = false;         // every rank can compress calls that return a request
  std::string disabled_because;  // why no call is compressed; empty where everything is in order
  int teller = 0;                // the rank that knows most of that
  /// For one rank to print; empty where there is nothing to say.
  [[nodiscard]] std::string warning() const;
};
/// `all`: by rank. `mine`: this rank's, whose reason is then given in full where it is the first that is disabled.
[[nodiscard]] Agreement agree(std::span<const RankSettings> all, int rank = 0, const Configuration* mine = nullptr);

/// "ranks 1, 4 and 7", at most eight of them by number.
[[nodiscard]] std::string name_ranks(std::span<const int> ranks);

}  // namespace gradwire::drop_in

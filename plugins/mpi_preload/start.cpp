// MPI_Init: the ranks learn which of them have the drop-in, agree on what to do, and make our one communicator. None of
// this happens later.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/current_error.hpp"
#include "base/units.hpp"
#include "drop_in/registration.hpp"
#include "plugins/mpi_preload/comm_state.hpp"
#include "plugins/mpi_preload/observing.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {
namespace {

using transport::check_mpi;
using Settings = drop_in::RankSettings;

// How long it waits for ranks that did not register, and how long making the private communicator may take.
constexpr std::chrono::milliseconds kForAnswers = std::chrono::seconds(60);
constexpr std::chrono::milliseconds kForTheWorld = std::chrono::minutes(5);

drop_in::Registration& registration() {
  static auto* const instance = new drop_in::Registration;
  return *instance;
}

std::vector<Settings> settings_in(std::span<const std::byte> bytes) {
  std::vector<Settings> all(bytes.size() / sizeof(Settings));
  std::memcpy(static_cast<void*>(all.data()), bytes.data(), bytes.size());
  return all;
}

// Asks all ranks where it is not known that every rank has the drop-in, by a nonblocking call, which shows the ranks
// that have not answered. Going on without an answer would not be safe, since a rank may only be late.
std::vector<Settings> ask_all(const Settings& mine) {
  const transport::Records records =
      transport::exchange_records(MPI_COMM_WORLD, std::as_bytes(std::span(&mine, 1)), kForAnswers);
  if (!records.missing.empty()) {
    say("no answer from " + drop_in::name_ranks(records.missing) + " of " +
        std::to_string(records.all.size() / sizeof(Settings)) + " in MPI_Init within " + format_duration(kForAnswers) +
        ": it runs without gradwire. Give every rank the same preload, on other hosts too, or start the job by "
        "`gradwire run`, which finds that out and passes every call");
    PMPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  return settings_in(records.all);
}

std::vector<Settings> exchange(const Settings& mine, int size) {
  std::vector<std::byte> all(static_cast<std::size_t>(size) * sizeof(Settings));
  check_mpi(PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD),
            "telling ranks each other's settings (MPI_Allgather)");
  return settings_in(all);
}

void pass_all(const std::string& why, bool tells) {
  process().agreement.disabled_because = why;
  if (tells && !process().configuration.quiet) {
    tell("every call is passed through: " + why);
  }
}

// The settings of all ranks, by rank; none where a rank cannot take part.
std::vector<Settings> settings_of_all(const Settings& mine, int rank, int size) {
  if (size == 1) {
    return {mine};
  }
  using Kind = drop_in::RegistrationAnswer::Kind;
  const drop_in::RegistrationAnswer answer = registration().ask(rank, size);
  switch (answer.kind) {
    case Kind::no_server: return ask_all(mine);
    case Kind::all: return exchange(mine, size);
    case Kind::missing: {
      int lowest = 0;  // the lowest rank with the drop-in
      while (std::find(answer.missing.begin(), answer.missing.end(), lowest) != answer.missing.end()) {
        ++lowest;
      }
      pass_all(drop_in::name_ranks(answer.missing) + " of " + std::to_string(size) +
                   (answer.missing.size() == 1 ? " runs" : " run") + " without gradwire",
               rank == lowest);
      return {};
    }
    case Kind::unreachable: break;
  }
  pass_all(
      "this rank cannot reach gradwire run at " + answer.why + "; open that way, or start the job with --no-register",
      true);
  return {};
}

// Ranks exchange whether they can compress requests, so the thread for these starts before that.
bool can_take_requests() {
  return transport::mpi_thread_level() == MPI_THREAD_MULTIPLE && !transport::tolerates_faults();  // see D139
}

void begin() {
  Process& self = process();
  int rank = 0;
  int size = 1;
  check_mpi(PMPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(PMPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  auto mine = Settings::of(self.configuration);
  std::unique_ptr<drop_in::CallQueue> queue;
  if (can_take_requests()) {
    try {
      if (self.configuration.compresses()) {
        queue = std::make_unique<drop_in::CallQueue>();
      }
      mine.requests = 1;
    } catch (const std::exception& error) {
      tell(std::string("MPI_Iallreduce and the like pass through on all ranks: no thread can be started here (") +
           error.what() + ")");
    }
  }
  const std::vector<Settings> all = settings_of_all(mine, rank, size);
  if (all.empty()) {
    return;
  }
  self.all_ranks_have_drop_in = true;
  self.agreement = drop_in::agree(all, rank, &self.configuration);
  if (rank == self.agreement.teller && !self.agreement.disabled_because.empty()) {
    warn_once(self.agreement.warning());
  }
  if (self.agreement.mode == drop_in::Mode::compressing && size == 1) {
    self.agreement.mode = drop_in::Mode::observing;  // a world of one has no peers, but may spawn other worlds
  }
  if (self.agreement.mode == drop_in::Mode::compressing) {
    self.world = std::make_shared<transport::MpiWorld>(kForTheWorld);
    g_standing = CallHandling::compresses;
    make_world_state(self.agreement.requests ? std::move(queue) : nullptr);
  } else if (self.agreement.mode != drop_in::Mode::disabled) {
    begin_observing();
    g_standing = CallHandling::observes;
  }
}

}  // namespace

void before_init() noexcept {
  if (process().understood) {
    registration().begin();
  }
}

void after_init() noexcept {
  if (!may_act() || g_standing != CallHandling::not_begun) {
    return;
  }
  g_standing = CallHandling::forwards;
  try {
    begin();
  } catch (...) {
    // Ranks may have decided differently now, so none may go on.
    say("in MPI_Init: " + std::string(current_error().what()));
    PMPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
}

}  // namespace gradwire::mpi_preload

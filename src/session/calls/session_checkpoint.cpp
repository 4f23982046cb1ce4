// Session::checkpoint() and restore(): they decide when a checkpoint is written and from which one a job continues.
#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "memory/device_pointer.hpp"
#include "observe/record.hpp"
#include "session/calls/session_state.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"
#include "session/parts/checkpoints/checkpoints.hpp"

namespace gradwire {
namespace {

using session::CheckpointName;
using session::SavedState;

// A rank's verdict on a checkpoint that it has read.
enum class Verdict : std::uint8_t {
  good,
  unusable,    // the checkpoint is damaged; the previous one may do
  unreadable,  // this rank cannot read it now, though it may be whole
  mismatch
};

Verdict verdict_of(const std::exception& error) {
  const auto* own_error = dynamic_cast<const Error*>(&error);
  if (own_error == nullptr) {
    return Verdict::unreadable;
  }
  return own_error->code() == ErrorCode::mismatch  ? Verdict::mismatch
         : own_error->code() == ErrorCode::corrupt ? Verdict::unusable
                                                   : Verdict::unreadable;
}

struct Read {
  std::vector<SavedState> states;
  std::vector<wire::Bytes> parameters;  // only on rank 0
  Verdict verdict = Verdict::unusable;
  std::string why = {};
};

Read read_checkpoint(const std::filesystem::path& directory, const CheckpointName& name,
                     std::span<const View> parameters, int rank, int world_size, session::Engine& engine) {
  Read read;
  try {
    const session::ResidualSpills spills = [&] {
      const MutexLock lock(engine.progress.wire);
      return engine.residual_spills();
    }();
    read.states =
        session::read_state_files(directory / name.text(), rank, world_size, engine.parts.begin_rows(), spills);
    if (read.states.front().step != name.step || read.states.front().world_size != name.world_size) {
      throw Error(ErrorCode::corrupt, (directory / name.text()).string() + ": its states are of another step or world");
    }
    if (rank == 0) {
      read.parameters = session::read_checkpoint_parameters(directory, name, parameters);
    }
    read.verdict = Verdict::good;
  } catch (const std::exception& error) {
    read.verdict = verdict_of(error);
    read.why = error.what();
    log(LogLevel::warning, "restore: rank " + std::to_string(rank) + " cannot use a checkpoint: " + read.why);
  }
  return read;
}

// Returns the worst of all ranks' verdicts.
Verdict verdict_of_all(Session& session, Verdict mine) {
  Verdict all = Verdict::good;
  for (int rank = 0; rank < session.world_size(); ++rank) {
    auto verdict = static_cast<double>(mine);
    session.broadcast(view(&verdict, 1), rank);
    all = std::max(all, static_cast<Verdict>(verdict));
  }
  return all;
}

// Throws if the checkpoint may be whole but cannot be used now, because going on without it would lose steps.
void refuse(Verdict overall, const Read& mine, const std::string& name) {
  if (overall == Verdict::mismatch) {
    throw Error(ErrorCode::mismatch, mine.verdict == Verdict::mismatch
                                         ? mine.why
                                         : "restore: " + name + " is of another model, as another rank says");
  }
  if (overall == Verdict::unreadable) {
    throw Error(ErrorCode::invalid_argument,
                mine.verdict == Verdict::unreadable
                    ? "restore: " + mine.why +
                          "; is the directory there, on this rank too? Nothing was changed; move " + name +
                          " away to go on from the checkpoint before"
                    : "restore: another rank cannot read " + name + ", as its error says; nothing was changed");
  }
}

// The checkpoints that rank 0 sees, the newest first. agree_on_name() tells all ranks of an error.
struct Candidates {
  std::vector<CheckpointName> names;
  std::string error;
};

Candidates candidates_of(const std::filesystem::path& directory) {
  try {
    return {session::complete_checkpoints(directory), {}};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

// Rank 0 tells all ranks which checkpoint to try next. Returns nothing if there is none left.
std::optional<CheckpointName> agree_on_name(Session& session, const Candidates& candidates_of_root, std::size_t at) {
  constexpr std::uint64_t kHalf = 1ULL << 32;
  std::array<double, 4> text{};
  if (!candidates_of_root.error.empty()) {
    text[1] = -1;
  } else if (at < candidates_of_root.names.size()) {
    const CheckpointName& name = candidates_of_root.names[at];
    const std::uint64_t upper = name.hash / kHalf;  // a double holds exactly only half of the hash's bits
    text = {static_cast<double>(name.step), static_cast<double>(name.world_size), static_cast<double>(upper),
            static_cast<double>(name.hash % kHalf)};
  }
  session.broadcast(view(text.data(), text.size()));
  if (text[1] < 0) {
    throw Error(ErrorCode::invalid_argument,
                candidates_of_root.error.empty()
                    ? "restore: rank 0 cannot read the directory of checkpoints, as its error says"
                    : "restore: " + candidates_of_root.error);
  }
  if (text[1] == 0) {
    return std::nullopt;
  }
  return CheckpointName{.step = static_cast<std::uint64_t>(text[0]),
                        .world_size = static_cast<int>(text[1]),
                        .hash = static_cast<std::uint64_t>(text[2]) * kHalf + static_cast<std::uint64_t>(text[3])};
}

// Returns a number that no other world of this session has: that of its engine in tickets.
std::uint32_t number_of_world(const session::Access::State& state) { return state.engine().settled_step().session(); }

void require_host(session::Runner& runner, const char* call) {
  if (runner.device() != nullptr) {
    throw Error(ErrorCode::unsupported, std::string(call) +
                                            ": not in a session over device memory; use save() and "
                                            "load(), and write the parameters yourself");
  }
}

}  // namespace

void Session::checkpoint(const std::filesystem::path& directory, std::span<const ConstView> parameters, int keep) {
  require_host(*state_->engine().runner, "checkpoint");
  state_->reduce_late_gradients("checkpoint");
  confirm();
  session::Engine& engine = state_->engine();
  const observe::Span span({.source = engine.runner->info().source, .kind = observe::EventKind::save});
  engine.checked([&] {
    if (keep < 1) {
      throw Error(ErrorCode::invalid_argument, "checkpoint: keep is " + std::to_string(keep) + "; it is 1 or more");
    }
    for (const ConstView& parameter : parameters) {
      memory::require_host_memory(parameter.data, "checkpoint: a parameter");
    }
    engine.device.catch_up_with_replays();
    const MutexLock lock(engine.progress.wire);
    engine.communication.drain("checkpoint");
    session::Checkpoints& files = files_of(engine);
    files.wait();
    SavedState saved = engine.saved_state();
    files.enter(directory, saved.step);
    files.write(std::move(saved), parameters, keep);
  });
}

void Session::wait_for_checkpoint() { files_of(state_->engine()).get(); }

std::uint64_t Session::restore(const std::filesystem::path& directory, std::span<const View> parameters) {
  require_host(*state_->engine().runner, "restore");
  if (state_->waits("restore")) {
    return 0;
  }
  static_cast<void>(files_of(state_->engine()));  // throws before anything changes in a session without that part
  const session::UnusedRows unused(*state_);
  for (;;) {
    const std::uint32_t world = number_of_world(*state_);
    try {
      if (const auto step = restore_in_world(directory, parameters)) {
        return *step;
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument || number_of_world(*state_) == world) {
        throw;
      }  // over Processes, the rank that broadcast the checkpoint's name has ended: try again in the new world
    }
  }
}

// Returns nothing if the world has changed meanwhile.
std::optional<std::uint64_t> Session::restore_in_world(const std::filesystem::path& directory,
                                                       std::span<const View> parameters) {
  const observe::Span span({.source = state_->engine().runner->info().source, .kind = observe::EventKind::load});
  const std::uint32_t world = number_of_world(*state_);
  const Candidates candidates = rank() == 0 ? candidates_of(directory) : Candidates();
  std::optional<CheckpointName> name;
  Read read;
  Verdict verdict = Verdict::unusable;
  for (std::size_t at = 0; verdict != Verdict::good; ++at) {
    name = agree_on_name(*this, candidates, at);
    if (number_of_world(*state_) != world) {
      return std::nullopt;
    }
    if (!name) {
      break;
    }
    read = {};  // frees memory before the next checkpoint is read
    read = read_checkpoint(directory, *name, parameters, rank(), world_size(), state_->engine());
    verdict = verdict_of_all(*this, read.verdict);
    if (number_of_world(*state_) != world) {
      return std::nullopt;
    }
    refuse(verdict, read, name->text());
  }
  if (name) {
    session::Engine& engine = state_->engine();
    engine.checked([&] {
      const MutexLock lock(engine.progress.wire);
      engine.restore(read.states, (directory / name->text()).string());
    });
    for (std::size_t i = 0; i < read.parameters.size(); ++i) {
      std::memcpy(parameters[i].data, read.parameters[i].data(), read.parameters[i].size());
    }
    broadcast(parameters);
    if (number_of_world(*state_) != world) {
      return std::nullopt;
    }
  }
  if (rank() == 0) {
    try {
      session::set_aside_later_checkpoints(directory, name ? name->step : 0);
    } catch (const Error& error) {  // only a warning, because the other ranks have restored already
      log(LogLevel::warning, "restore: later checkpoints are not set aside: " + std::string(error.what()));
    }
  }
  files_of(state_->engine()).restored_from(directory, name ? name->text() : "");
  return name ? name->step : 0;
}

}  // namespace gradwire

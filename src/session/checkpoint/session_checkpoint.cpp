// Session::checkpoint() and restore(): when a checkpoint is written, and which one a job goes on from.
#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "observe/record.hpp"
#include "session/checkpoint/checkpoint_folder.hpp"
#include "session/device/device_pointer.hpp"
#include "session/session_state.hpp"

namespace gradwire {
namespace {

using session::CheckpointName;
using session::SavedState;

// What a rank says of a checkpoint that it has read.
enum class Verdict : std::uint8_t { unusable, good, mismatch };

struct Read {
  std::vector<SavedState> states;
  std::vector<wire::Bytes> parameters;  // of rank 0
  Verdict verdict = Verdict::unusable;
  std::string why = {};
};

Read read_checkpoint(const std::filesystem::path& directory, const CheckpointName& name,
                     std::span<const View> parameters, int rank, int world_size) {
  Read read;
  try {
    read.states = session::read_state_files(directory / name.text(), rank, world_size);
    if (read.states.front().step != name.step || read.states.front().world_size != name.world_size) {
      throw Error(ErrorCode::corrupt, (directory / name.text()).string() + ": its states are of another step or world");
    }
    if (rank == 0) {
      read.parameters = session::read_checkpoint_parameters(directory, name, parameters);
    }
    read.verdict = Verdict::good;
  } catch (const Error& error) {
    read.verdict = error.code() == ErrorCode::mismatch ? Verdict::mismatch : Verdict::unusable;
    read.why = error.what();
    log(LogLevel::warning, "restore: rank " + std::to_string(rank) + " cannot use a checkpoint: " + read.why);
  }
  return read;
}

// The worst of all ranks' verdicts.
Verdict verdict_of_all(Session& session, Verdict mine) {
  Verdict all = Verdict::good;
  for (int rank = 0; rank < session.world_size(); ++rank) {
    auto verdict = static_cast<double>(mine);
    session.broadcast(view(&verdict, 1), rank);
    if (all != Verdict::mismatch && verdict != static_cast<double>(Verdict::good)) {
      all = static_cast<Verdict>(verdict);
    }
  }
  return all;
}

// Rank 0 says which checkpoint is tried; none: there is none left.
std::optional<CheckpointName> agree_on_name(Session& session, const std::optional<CheckpointName>& of_rank_0) {
  constexpr std::uint64_t kHalf = 1ULL << 32;
  std::array<double, 4> text{};
  if (of_rank_0) {
    text = {static_cast<double>(of_rank_0->step), static_cast<double>(of_rank_0->world_size),
            static_cast<double>(of_rank_0->hash / kHalf), static_cast<double>(of_rank_0->hash % kHalf)};
  }
  session.broadcast(view(text.data(), text.size()));
  if (text[1] == 0) {
    return std::nullopt;
  }
  return CheckpointName{.step = static_cast<std::uint64_t>(text[0]),
                        .world_size = static_cast<int>(text[1]),
                        .hash = static_cast<std::uint64_t>(text[2]) * kHalf + static_cast<std::uint64_t>(text[3])};
}

}  // namespace

void Session::checkpoint(const std::filesystem::path& directory, std::span<const ConstView> parameters, int keep) {
  State& state = *state_;
  const observe::Span span({.source = state.runner->info().source, .kind = observe::EventKind::save});
  state.checked([&] {
    if (keep < 1) {
      throw Error(ErrorCode::invalid_argument, "checkpoint: keep is " + std::to_string(keep) + "; it is 1 or more");
    }
    for (const ConstView& parameter : parameters) {
      session::require_host_memory(parameter.data, "checkpoint: a parameter");
    }
    state.catch_up_with_replays();
    const std::lock_guard lock(state.progress.wire);
    state.drain("checkpoint");
    SavedState saved = state.saved_state();
    if (state.checkpoints.directory != directory) {
      if (const std::uint64_t latest = session::latest_checkpoint_step(directory); latest > saved.step) {
        throw Error(ErrorCode::invalid_argument, "checkpoint: " + directory.string() + " holds one of step " +
                                                     std::to_string(latest) + ", later than this session's step " +
                                                     std::to_string(saved.step) +
                                                     "; call restore() first, or name another directory");
      }
      state.checkpoints.directory = directory;
    }
    const CheckpointName name{saved.step, saved.world_size, session::hash_of(parameters)};
    wire::Bytes bytes = saved.rank == 0 ? session::encode_parameters(parameters, saved.step) : wire::Bytes();
    if (state.checkpoints.writing.valid()) {
      state.checkpoints.writing.wait();  // one at a time; what went wrong was told
    }
    state.checkpoints.writing =
        std::async(std::launch::async, [directory, name, keep, saved = std::move(saved), bytes = std::move(bytes)] {
          try {
            session::write_checkpoint_state(directory, name, saved);
            if (saved.rank == 0) {
              session::write_checkpoint_parameters(directory, name, bytes);
              session::rotate_checkpoints(directory, keep);
            }
          } catch (const Error& error) {
            log(LogLevel::warning, "the checkpoint of step " + std::to_string(saved.step) +
                                       " is not written, training goes on: " + error.what());
            throw;
          }
        });
  });
}

void Session::wait_for_checkpoint() {
  if (state_->checkpoints.writing.valid()) {
    state_->checkpoints.writing.get();
  }
}

std::uint64_t Session::restore(const std::filesystem::path& directory, std::span<const View> parameters) {
  for (;;) {
    const int world = world_size();
    try {
      if (const auto step = restore_in_world(directory, parameters)) {
        return *step;
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument || world_size() == world) {
        throw;
      }  // over Processes: whom the others listened to has ended
    }
  }
}

// Nothing: the world has changed meanwhile.
std::optional<std::uint64_t> Session::restore_in_world(const std::filesystem::path& directory,
                                                       std::span<const View> parameters) {
  const observe::Span span({.source = state_->runner->info().source, .kind = observe::EventKind::load});
  const int world = world_size();
  std::vector<CheckpointName> candidates;
  if (rank() == 0) {
    candidates = session::complete_checkpoints(directory);
  }
  std::reverse(candidates.begin(), candidates.end());
  std::optional<CheckpointName> name;
  Read read;
  for (Verdict verdict = Verdict::unusable; verdict != Verdict::good;) {
    name = agree_on_name(*this, candidates.empty() ? std::nullopt : std::optional(candidates.back()));
    if (world_size() != world) {
      return std::nullopt;
    }
    if (!name) {
      break;
    }
    candidates.resize(candidates.size() - (candidates.empty() ? 0 : 1));
    read = read_checkpoint(directory, *name, parameters, rank(), world_size());
    verdict = verdict_of_all(*this, read.verdict);
    if (world_size() != world) {
      return std::nullopt;
    }
    if (verdict == Verdict::mismatch) {
      throw Error(ErrorCode::mismatch, read.verdict == Verdict::mismatch
                                           ? read.why
                                           : "restore: " + name->text() + " is of another model, as another rank says");
    }
  }
  if (name) {
    state_->checked([&] {
      const std::lock_guard lock(state_->progress.wire);
      state_->restore(read.states, (directory / name->text()).string());
    });
    for (std::size_t i = 0; i < read.parameters.size(); ++i) {
      std::memcpy(parameters[i].data, read.parameters[i].data(), read.parameters[i].size());
    }
    broadcast(parameters);
    if (world_size() != world) {
      return std::nullopt;
    }
  }
  if (rank() == 0) {
    session::set_aside_later_checkpoints(directory, name ? name->step : 0);
  }
  state_->checkpoints.directory = directory;  // once rank 0 has looked, there are none of later steps
  return name ? name->step : 0;
}

}  // namespace gradwire

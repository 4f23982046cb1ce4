// Session::save() and load(), and the end of a session whose checkpoint is still being written.
#include <string>
#include <vector>

#include "observe/record.hpp"
#include "session/calls/session_state.hpp"
#include "session/parts/checkpoints/checkpoints.hpp"
#include "session/state/state_file.hpp"

namespace gradwire {

using session::SavedState;

session::Checkpoints& session::files_of(const Engine& engine) {
  auto* part = engine.parts.find<Checkpoints>();
  if (part == nullptr) {
    throw Error(ErrorCode::unsupported, "this session was made without the part that knows its files");
  }
  return *part;
}

// The engine ends before the wait for the checkpoint, so that other ranks learn at once that this one leaves.
Session::State::~State() {
  if (engine_ != nullptr) {
    if (const auto* files = engine_->parts.find<session::Checkpoints>()) {
      writing_ = files->writing();
    }
  }
}

namespace {

// Calls `write` with the state between two steps, under the lock for communication.
template <typename Write>
void save_by(session::Access::State& state, Write&& write) {
  state.reduce_late_gradients("save");
  session::Engine& engine = state.engine();
  const observe::Span span({.source = engine.runner->info().source, .kind = observe::EventKind::save});
  engine.checked([&] {
    engine.device.catch_up_with_replays();
    const MutexLock lock(engine.progress.wire);
    engine.communication.drain("save");
    write(engine.saved_state());
  });
}

}  // namespace

void Session::save(const std::filesystem::path& directory) {
  save_by(*state_, [&](const SavedState& saved) { files_of(state_->engine()).save_to(directory, saved); });
}

void Session::save(std::ostream& stream) {
  save_by(*state_, [&](const SavedState& saved) { session::write_state(saved, stream); });
}

void Session::load(const std::filesystem::path& directory) {
  if (state_->waits("load")) {
    return;
  }
  session::Engine& engine = state_->engine();
  const observe::Span span({.source = engine.runner->info().source, .kind = observe::EventKind::load});
  engine.checked([&] {
    session::Checkpoints& files = files_of(engine);
    const MutexLock lock(engine.progress.wire);
    const session::UnusedRows unused(*state_);
    const std::vector<SavedState> saved =
        session::read_state_files(directory, rank(), world_size(), engine.parts.begin_rows(), engine.residual_spills());
    engine.restore(saved, directory.string());
    files.loaded_from(directory, saved.front().step);
  });
}

void Session::load(std::istream& stream) {
  if (state_->waits("load")) {
    return;
  }
  session::Engine& engine = state_->engine();
  const observe::Span span({.source = engine.runner->info().source, .kind = observe::EventKind::load});
  engine.checked([&] {
    const MutexLock lock(engine.progress.wire);
    const session::UnusedRows unused(*state_);
    if (engine.parts.begin_rows() != nullptr) {
      throw Error(ErrorCode::unsupported,
                  "load: a stream is one rank's, and rows of tables are looked for in those of all; load a directory");
    }
    const std::vector<SavedState> saved{session::read_state(stream, "load", nullptr, engine.residual_spills())};
    if (saved[0].world_size != world_size() || saved[0].rank != rank()) {
      throw Error(ErrorCode::mismatch, "load: the stream is of rank " + std::to_string(saved[0].rank) + " of " +
                                           std::to_string(saved[0].world_size) + ", this is rank " +
                                           std::to_string(rank()) + " of " + std::to_string(world_size()) +
                                           "; load a directory to change the world size");
    }
    engine.restore(saved, "load");
  });
}

void session::Access::load(Session& session, const std::vector<SavedState>& states, const std::string& source) {
  Engine& engine = session.state_->engine();
  engine.checked([&] {
    const MutexLock lock(engine.progress.wire);
    engine.restore(states, source);
  });
}

}  // namespace gradwire

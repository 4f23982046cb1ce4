#include "session/parts/checkpoints/checkpoints.hpp"

#include <utility>

#include "base/log.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"

namespace gradwire::session {
namespace {

// A future keeps the arguments of its function, so the state and the parameters are moved into this function, which
// frees their memory when it returns.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void write_checkpoint(const std::filesystem::path& directory, const CheckpointName& name, int keep, SavedState saved,
                      wire::Bytes parameters) {  // NOLINT(performance-unnecessary-value-param)
  try {
    write_checkpoint_state(directory, name, saved);
    if (saved.rank == 0) {
      write_checkpoint_parameters(directory, name, parameters);
      rotate_checkpoints(directory, keep);
    }
  } catch (const std::exception& error) {
    log(LogLevel::warning,
        "the checkpoint of step " + std::to_string(name.step) + " is not written, training goes on: " + error.what());
    throw;
  }
}

}  // namespace

void Checkpoints::take_over(Part& before) {
  const auto& other = static_cast<const Checkpoints&>(before);
  directory_ = other.directory_;
  restored_ = other.restored_;
  writing_ = other.writing_;
}

void Checkpoints::save_to(const std::filesystem::path& directory, const SavedState& state) {
  write_state_file(state, directory, known_);
  known_ = {directory, state.step};
}

void Checkpoints::enter(const std::filesystem::path& directory, std::uint64_t step) {
  if (directory_ == directory) {
    return;
  }
  if (const std::uint64_t latest = latest_checkpoint_step(directory); latest > step) {
    throw Error(ErrorCode::invalid_argument, "checkpoint: " + directory.string() + " holds one of step " +
                                                 std::to_string(latest) + ", later than this session's step " +
                                                 std::to_string(step) +
                                                 "; call restore() first, or name another directory");
  }
  directory_ = directory;
  restored_.clear();
}

void Checkpoints::write(SavedState state, std::span<const ConstView> parameters, int keep) {
  const CheckpointName name{state.step, state.world_size, hash_of(parameters)};
  if (name.text() == restored_) {
    return;  // it is complete; writing its files once more could lose it
  }
  wire::Bytes bytes = state.rank == 0 ? encode_parameters(parameters, state.step) : wire::Bytes();
  writing_ = std::async(std::launch::async, [directory = directory_, name, keep, state = std::move(state),
                                             bytes = std::move(bytes)]() mutable {
    write_checkpoint(directory, name, keep, std::exchange(state, {}), std::exchange(bytes, {}));
  });
}

void Checkpoints::wait() {
  if (writing_.valid()) {
    writing_.wait();  // one checkpoint at a time is in memory; its error was logged
  }
}

void Checkpoints::get() {
  if (writing_.valid()) {
    std::exchange(writing_, {}).get();
  }
}

void Checkpoints::restored_from(const std::filesystem::path& directory, std::string name) {
  restored_ = std::move(name);
  directory_ = directory;
}

std::unique_ptr<Part> make_checkpoints(const PartInputs& /*inputs*/) { return std::make_unique<Checkpoints>(); }

}  // namespace gradwire::session

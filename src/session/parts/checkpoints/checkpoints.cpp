#include "session/parts/checkpoints/checkpoints.hpp"

#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "codec/packed_pieces.hpp"
#include "memory/paged_vector.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"

namespace gradwire::session {
namespace {

// The parameters at the time of the call, for the thread that writes them.
struct Copies {
  memory::ScratchVector<std::byte> bytes;
  std::vector<ConstView> views;
};

Copies copy(std::span<const ConstView> parameters) {
  constexpr std::size_t kAligned = 8;
  const auto bytes_of = [](const ConstView& view) { return view.count * element_bytes(view.dtype); };
  std::size_t bytes = 0;
  for (const ConstView& view : parameters) {
    bytes += bytes_of(view) + kAligned;
  }
  Copies copies;
  copies.bytes.resize(bytes);
  std::size_t at = 0;
  for (const ConstView& view : parameters) {
    std::byte* place = copies.bytes.data() + at;
    if (view.count > 0) {
      std::memcpy(place, view.data, bytes_of(view));
    }
    copies.views.push_back(ConstView{place, view.count, view.dtype});
    at += (bytes_of(view) + kAligned - 1) / kAligned * kAligned;
  }
  return copies;
}

// A future keeps the arguments of its function, so the state and the parameters are moved into this function, which
// frees their memory when it returns.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void write_checkpoint(const std::filesystem::path& directory, const CheckpointName& name, int keep, SavedState saved,
                      Copies parameters) {  // NOLINT(performance-unnecessary-value-param)
  try {
    write_checkpoint_state(directory, name, saved);
    if (saved.rank == 0) {
      write_checkpoint_parameters(directory, name, parameters.views, saved.packed);
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
  if (state.packed) {
    codec::require_packing();
  }
  writing_ = std::async(std::launch::async,
                        [directory = directory_, name, keep, copies = state.rank == 0 ? copy(parameters) : Copies(),
                         state = std::move(state)]() mutable {
                          write_checkpoint(directory, name, keep, std::exchange(state, {}), std::exchange(copies, {}));
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

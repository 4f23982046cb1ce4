#include "session/parts/sync_modes/sync_modes_part.hpp"

#include <string>

#include "gradwire/error.hpp"

namespace gradwire::session {

SyncModesPart::SyncModesPart(const PartInputs& inputs)
    : inputs_(inputs), modes_(*inputs.plan, inputs.schedule, inputs.tensors.parameters(), inputs.undoable) {
  if (!inputs.runner.info().background) {
    throw Error(ErrorCode::unsupported,
                "policy " + inputs.policy.source +
                    ": over device memory there is no sync but \"step\" yet; write sync = \"step\" or remove it");
  }
}

void SyncModesPart::check_loss_scale() const {
  if (modes_.has_outer()) {
    throw Error(ErrorCode::unsupported,
                "set_loss_scale: residuals of parameter changes have no loss scale; unscale gradients before the "
                "optimizer, or leave outer out of sync");
  }
}

// Each rank continues from its own copy of these parameters, so this checks that they are the same on all ranks.
void SyncModesPart::before_bucket(std::uint64_t step) {
  if (!modes_.has_outer() || (agreed_on_outer_ && !modes_.begins_outer(step))) {
    return;
  }
  const auto hashes =
      inputs_.runner.peers().all_gather(std::to_string(modes_.outer_hash()), "the agreement on parameters");
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) {
      throw Error(ErrorCode::mismatch, "parameters of tensors under sync with outer differ between ranks 0 and " +
                                           std::to_string(rank) +
                                           " before the first local step; broadcast() them, or load the same state");
    }
  }
  modes_.drop_anchors(step);
  agreed_on_outer_ = true;
}

void SyncModesPart::add_to(SessionStatistics& statistics) const {
  const std::vector<Lateness> ages = modes_.ages();
  for (std::size_t i = 0; i < statistics.groups.size() && i < ages.size(); ++i) {
    statistics.groups[i].late = ages[i];
  }
}

void SyncModesPart::deliver_between_steps(std::uint64_t step) {
  modes_.released_count(step);
  static_cast<void>(modes_.deliver({}, 1));
}

std::vector<View> SyncModesPart::comparable(std::uint64_t step) const {
  std::vector<View> results;
  for (std::size_t i = 0; i < inputs_.tensors.size(); ++i) {
    const plan::Bucket& bucket = inputs_.plan->buckets[inputs_.plan->tensors[i].bucket];
    if (bucket.sync.mode != Sync::Mode::every || !inputs_.schedule.active(bucket.id, step)) {
      results.push_back(inputs_.tensors.memory()[i].gradient);
    } else if (modes_.synced(bucket.id)) {
      results.push_back(inputs_.tensors.parameters()[i][0]);
    }
  }
  return results;
}

SyncModes* sync_modes_of(const PartSet& parts) {
  auto* part = parts.find<SyncModesPart>();
  return part != nullptr ? &part->modes() : nullptr;
}

std::unique_ptr<Part> make_sync_modes(const PartInputs& inputs) {
  const bool has_late_results =
      inputs.held != nullptr && !inputs.held->sync_modes.results.empty();  // results under another policy
  return inputs.plan->has_modes() || has_late_results ? std::make_unique<SyncModesPart>(inputs) : nullptr;
}

}  // namespace gradwire::session

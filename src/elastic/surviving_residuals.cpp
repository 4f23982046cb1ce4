#include "elastic/surviving_residuals.hpp"

#include <string>

#include "base/log.hpp"
#include "base/mutex.hpp"
#include "session/parts/sync_modes/sync_modes_part.hpp"

namespace gradwire::session {

void SurvivingResiduals::prepare_commit(Engine& engine) {
  const MutexLock lock(engine.progress.wire);
  engine.runner->undo()->prepare_commit();
}

void SurvivingResiduals::commit(Engine& engine) {
  const MutexLock lock(engine.progress.wire);
  const StepOutcome& outcome = engine.settled_step().outcome();
  const SyncModes* modes = sync_modes_of(engine.parts);
  if (outcome.skipped && modes != nullptr && modes->has_uncounted()) {
    return;  // late gradients may be on their way, and nothing else has changed
  }
  engine.runner->undo()->commit();
  const std::uint64_t number = engine.settled_step().number();
  if (!outcome.skipped) {
    sent_ = number;
    flushed_ = engine.settled_step().info().flush ? sent_ : flushed_;
  }
  if (elastic_.copies().is_due_after(number)) {
    try {
      elastic_.copies().send(
          number, {engine.settled_step().terms.loss_scale(), engine.runner->held().save_residuals(*engine.plan)});
    } catch (const std::exception& error) {  // the step counts all the same
      log(LogLevel::warning, std::string("residuals were not copied to another rank: ") + error.what());
    }
  }
}

exchange::ResidualStore SurvivingResiduals::of(Engine& before, Engine& engine, const SavedState& held) {
  const bool plain_mean = reduction_ == Reduction::mean && !before.settled_step().terms.is_to_be_weighted();
  const float ratio =
      static_cast<float>(engine.runner->info().world_size) / static_cast<float>(before.runner->info().world_size);
  exchange::ResidualStore residuals =
      before.runner->held().empty_store(engine.plan->residual_form(engine.runner->info().rank));
  const auto add = [&](const SavedResidual& residual, double factor = 1) {
    const bool averaged = plain_mean || held.sync_modes.has_anchor(residual.key.tensor);  // changes have no weights
    const bool owner = residual.key.site == codec::EncodeSite::owner;
    residuals.add(residual.key, residual.range.offset, residual.range.values,
                  static_cast<float>(factor) * (averaged && !owner ? ratio : 1.0F));
  };
  // Each rank keeps its residuals. A rank that no longer owns the elements of an owner residual adds it to what it
  // sends.
  const bool had_any = before.runner->held().residual_bytes() > 0;
  before.runner->held().hand_over(*before.plan, [&](const SavedResidual& residual) { add(residual); });
  // The error of few bits is sent with the next step, so an old copy would send it twice. The elements that topk leaves
  // out wait for many steps.
  const SyncModes* modes = sync_modes_of(before.parts);
  const auto counts = [&](std::uint32_t tensor, std::uint64_t copied) {
    const plan::Bucket& bucket = before.plan->buckets[before.plan->tensors[tensor].bucket];
    SyncModes::Sent last{sent_, flushed_};
    if (modes != nullptr) {
      last = modes->sent(bucket.id, engine.settled_step().number(), last);
    }
    return copied >= (bucket.codec.k > 0 ? last.all : last.some);
  };
  for (const CopyRing::RankCopy& kept : elastic_.copies().take(elastic_.holders())) {
    bool any = false, all = true;
    for (const SavedResidual& residual : kept.copy.residuals) {
      const std::uint32_t tensor = residual.key.tensor;
      const bool fits = tensor < engine.tensors.size() &&
                        residual.range.end() <= engine.tensors.infos()[tensor].count &&
                        residual.range.end() >= residual.range.offset;
      if (fits && residuals.has({tensor, codec::EncodeSite::local}) && counts(tensor, kept.step.value())) {
        add(residual, engine.settled_step().terms.loss_scale() / kept.copy.loss_scale);
        any = true;
      } else {
        all = false;
      }
    }
    if (any) {
      elastic_.copies().note_used(kept);
    }
    if (had_any) {
      log(LogLevel::warning,
          "of " + elastic_.name(kept.who) + ", which ended, " +
              (!kept.step ? "there is no copy of residuals: all that it had yet to send is lost"
                          : "residuals as of step " + std::to_string(*kept.step) +
                                (any && all ? " are kept: what it has dropped since is lost"
                                 : any      ? " are kept of some tensors, those of others were sent "
                                              "since: what it has dropped after that is lost"
                                            : " were sent since: what it has dropped after that is lost")));
    }
  }
  if (!residuals.empty()) {
    for (std::uint32_t tensor = 0; tensor < engine.tensors.size(); ++tensor) {
      residuals.mark_moved(tensor);
    }
  }
  return residuals;
}

}  // namespace gradwire::session

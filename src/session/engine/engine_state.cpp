// Saves the state of an engine between two steps, and continues from one: from files, or as the engine of the next
// world. If a world of another size saved the files, the residuals are distributed anew over the ranks.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "exchange/collectives.hpp"
#include "policy/sync.hpp"
#include "session/engine/engine.hpp"

namespace gradwire::session {
namespace {

using codec::EncodeSite;
using exchange::ResidualStore;
using When = PartMaker::When;

void check_tensors(const SavedState& saved, const std::vector<TensorInfo>& tensors, const std::string& source) {
  const auto describe = [](const TensorInfo& tensor) {
    return "\"" + tensor.name + "\" " + std::string(to_string(tensor.dtype)) + " x " + std::to_string(tensor.count);
  };
  for (std::size_t i = 0; i < std::max(saved.tensors.size(), tensors.size()); ++i) {
    const std::string theirs = i < saved.tensors.size() ? describe(saved.tensors[i]) : "nothing";
    const std::string ours = i < tensors.size() ? describe(tensors[i]) : "nothing";
    if (theirs != ours) {
      throw Error(ErrorCode::mismatch, source + ": is of another model: tensor " + std::to_string(i) + " is " + theirs +
                                           " there and " + ours + " here; load the state that this model saved");
    }
  }
}

// Residuals of parameter changes cannot be added to gradients, nor the other way round. Tensors whose parameters are
// averaged in place of gradients take no late gradients.
void check_units(const SavedState& saved, const plan::Plan& plan, const std::string& source) {
  const auto sync_of = [&](std::uint32_t tensor) {
    return SyncSchedule::after_load(plan.buckets[plan.tensors[tensor].bucket], saved.sync_modes);
  };
  const auto is_local = [&](const Sync& sync) {
    return sync.mode == Sync::Mode::every && policy::active(sync, saved.step);
  };
  const auto refuse = [&](const std::string& what, std::uint32_t tensor, bool were_changes, const Sync& sync) {
    throw Error(ErrorCode::mismatch, source + ": " + what + " of \"" + saved.tensors[tensor].name + "\" are of " +
                                         (were_changes ? "parameter changes" : "gradients") + ", which sync " +
                                         policy::to_string(sync) + " does not reduce; flush before saving");
  };
  for (const SavedResidual& residual : saved.residuals) {
    const std::uint32_t tensor = residual.key.tensor;
    const Sync sync = sync_of(tensor);
    const bool local = is_local(sync);
    const bool were_changes = saved.sync_modes.has_anchor(tensor);
    if (were_changes != local || (local && !sync.outer)) {
      refuse("residuals", tensor, were_changes, sync);
    }
  }
  for (const SavedLocalSteps& local : saved.sync_modes.local_steps) {
    if (const Sync sync = sync_of(local.tensor); local.moved && !is_local(sync)) {
      log(LogLevel::warning,
          source + ": when it was saved, ranks held different values of \"" + saved.tensors[local.tensor].name +
              "\", which sync " + policy::to_string(sync) +
              " does not synchronise; load the same parameters on every rank, or call sync_parameters() before " +
              "saving");
      break;
    }
  }
  for (const SavedResult& result :
       saved.sync_modes.results) {  // all are gradients: parameters arrive in their own step
    if (const Sync sync = sync_of(result.tensor); is_local(sync)) {
      refuse("results on their way", result.tensor, false, sync);
    }
  }
}

struct Elements {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Returns the elements of a tensor that `rank` encodes as their owner.
std::optional<Elements> owned_elements(const plan::Plan& plan, std::size_t tensor, int rank, int world) {
  const plan::TensorPlan& entry = plan.tensors[tensor];
  const plan::Bucket& bucket = plan.buckets[entry.bucket];
  if (!exchange::encodes_at_owner(bucket.algorithm) || world == 1) {
    return {};
  }
  const codec::Codec any(bucket.codec, DType::f32);  // shards depend on the count alone, not on the codec
  const auto shards = exchange::Partition::even(bucket.count, world, any, plan.host_chunk_bytes());
  const std::uint64_t begin = std::max(shards.shard_first(rank), entry.offset);
  const std::uint64_t end =
      std::min(shards.shard_first(rank) + shards.shard_count(rank), entry.offset + entry.info.count);
  if (begin >= end) {
    return {};
  }
  return Elements{begin - entry.offset, end - entry.offset};
}

class Resharding {
 public:
  // `empty` takes the residuals.
  Resharding(const plan::Plan& plan, const std::vector<SavedState>& saved, int rank, int world, ResidualStore empty)
      : plan_(plan), saved_(saved), rank_(rank), world_(world), store_(std::move(empty)) {}

  ResidualStore make() {
    const SavedState& any = saved_.front();
    // Resharding keeps the sum of the residuals over ranks, or for plain means their average.
    const bool plain_mean = any.reduction == Reduction::mean && !any.terms.weighted;
    const float share = static_cast<float>(world_) / static_cast<float>(any.world_size);
    for (const SavedState& state : saved_) {
      for (const SavedResidual& residual : state.residuals) {
        const float factor =
            plain_mean || any.sync_modes.has_anchor(residual.key.tensor) ? share : 1.0F;  // changes have no weights
        if (residual.key.site != EncodeSite::owner) {
          if (residual.key.site == EncodeSite::local) {  // either all ranks hold it or none, since ranks compare that
            store_.keep(residual.key, 0, plan_.tensors[residual.key.tensor].info.count);
          }
          if (state.rank % world_ == rank_) {
            store_.add(residual.key, residual.range.offset, residual.range.values, factor);
          }
        } else {
          take_owned(state, residual);
        }
      }
    }
    return std::move(store_);
  }

 private:
  // Distributes the residuals of owners by coordinate. If elements have no owner any more, the rank with the number of
  // their last owner, modulo the world size, adds them to its own.
  void take_owned(const SavedState& state, const SavedResidual& residual) {
    bool has_owner = false;
    for (int owner = 0; owner < world_; ++owner) {
      const auto owned = owned_elements(plan_, residual.key.tensor, owner, world_);
      if (!owned) {
        continue;
      }
      has_owner = true;
      const std::uint64_t begin = std::max(owned->begin, residual.range.offset);
      const std::uint64_t end = std::min(owned->end, residual.range.end());
      if (owner == rank_ && begin < end) {
        store_.keep(residual.key, owned->begin, owned->end - owned->begin);
        store_.add(residual.key, begin, residual.range.values.part(begin - residual.range.offset, end - begin), 1.0F);
      }
    }
    if (!has_owner && state.rank % world_ == rank_) {
      store_.add(residual.key, residual.range.offset, residual.range.values, 1.0F);
    }
  }

  const plan::Plan& plan_;
  const std::vector<SavedState>& saved_;
  int rank_;
  int world_;
  ResidualStore store_;
};

}  // namespace

SavedState Engine::saved_state() {
  const MutexLock lock(progress.state);
  throw_if_failed();
  step.require_between("save");
  make_plan();
  SavedState saved{.rank = runner->info().rank,
                   .world_size = runner->info().world_size,
                   .step = step.number(),
                   .terms = step.terms.saved(),
                   .reduction = settings.options.reduction,
                   .fingerprint = plan->fingerprint(),
                   .tensors = tensors.infos(),
                   .residuals = runner->held().save_residuals(*plan),
                   .packed = settings.policy.save_packed};
  parts.for_each([&](Part& part) { part.save(saved); });
  return saved;
}

ResidualSpills Engine::residual_spills() {
  const MutexLock lock(progress.state);
  const Policy& policy = settings.policy;
  if (policy.defaults.residuals.store.empty() &&
      std::all_of(policy.rules.begin(), policy.rules.end(),
                  [](const Policy::Rule& rule) { return rule.policy.residuals.store.empty(); })) {
    return {};
  }
  // A state that cannot be loaded must not fix the plan.
  const plan::Plan& now = plan ? *plan : plan::make_plan(policy, tensors.infos(), plan_options());
  const auto store =
      std::make_shared<ResidualStore>(runner->held().empty_store(now.residual_form(runner->info().rank)));
  return [store](std::uint32_t tensor) { return store->spill_of(tensor); };
}

void Engine::restore(const std::vector<SavedState>& saved, const std::string& source) {
  const MutexLock lock(progress.state);
  throw_if_failed();
  if (step.buckets.in_step() || step.terms.stepped() || parts.in_step()) {
    throw Error(ErrorCode::invalid_argument,
                "load: comes after the first ready(), pull() or push(); load before training goes on");
  }
  for (const SavedState& state : saved) {
    check_tensors(state, tensors.infos(), source);
    parts.for_each([&](const Part& part) { part.check(state, source); });
  }
  make_plan();
  const SavedState& first = saved.front();
  if (first.reduction != settings.options.reduction && !first.residuals.empty()) {
    throw Error(ErrorCode::mismatch, source + ": residuals are of another reduction (sum or mean) than this session's");
  }
  const bool weighted = first.terms.weighted && !first.residuals.empty();
  if (weighted && !step.terms.weighted()) {
    log(LogLevel::info, "load: the state is of weighted steps; call set_weight() before the first ready()");
  }
  if (!first.terms.weighted && step.terms.weighted() && !first.residuals.empty()) {
    throw Error(ErrorCode::mismatch,
                source + ": residuals are of steps without weights; load before set_weight(), or flush before saving");
  }
  check_units(first, *plan, source);
  const bool same_world = first.world_size == runner->info().world_size;
  ResidualStore residuals = runner->held().empty_store(plan->residual_form(runner->info().rank));
  if (same_world) {
    for (const SavedResidual& residual : first.residuals) {
      residuals.add(residual.key, residual.range.offset, residual.range.values, 1.0F);
    }
  } else {
    residuals = Resharding(*plan, saved, runner->info().rank, runner->info().world_size, std::move(residuals)).make();
  }
  if (!same_world || first.fingerprint != plan->fingerprint()) {
    for (std::uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
      residuals.mark_moved(tensor);
    }
    log(LogLevel::info, "load: the state was saved under another plan (" + first.fingerprint + ", world of " +
                            std::to_string(first.world_size) + "); its residuals are carried over");
  }
  SavedTerms terms = first.terms;
  terms.weighted = weighted;
  go_on_from(first, terms, std::move(residuals));
}

void Engine::take_over(Engine& before, const std::function<ResidualStore(const SavedState&)>& residuals) {
  const MutexLock wire_before(before.progress.wire);
  const MutexLock wire(progress.wire);
  const MutexLock state_before(before.progress.state);
  const MutexLock state(progress.state);
  for (std::size_t i = 0; i < before.tensors.size(); ++i) {
    step.add_tensor();
    tensors.add(before.tensors.infos()[i], before.tensors.added(i), before.tensors.parameters()[i],
                before.tensors.scale(i));
  }
  parts.take_over(before.parts, When::with_session);
  no_sync = before.no_sync.load();
  step.go_on_from(before.step);
  device.set_step();
  if (!before.plan) {
    return;
  }
  make_plan();
  parts.take_over(before.parts, When::with_plan);
  SavedState held{.step = step.number(), .terms = step.terms.saved()};
  before.parts.for_each([&](Part& part) { part.save(held); });
  go_on_from(held, held.terms, residuals(held));
}

void Engine::go_on_from(const SavedState& state, const SavedTerms& terms, ResidualStore residuals) {
  if (!state.sync_modes.results.empty() && parts.background() == nullptr) {  // they were saved under other sync modes
    parts.make(part_inputs(&state), When::with_plan);
  }
  runner->held().load_residuals(std::move(residuals), *plan);
  step.modes.load(*plan, state.sync_modes);
  parts.for_each([&](Part& part) { part.load(state); });
  coming.forget();  // there may be residuals
  step.resume(state.step, terms);
  device.set_step();
  reset_step(std::chrono::steady_clock::now());
}

}  // namespace gradwire::session

#include "elastic/newcomers.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/mutex.hpp"
#include "gradwire/version.hpp"
#include "session/parts/sync_modes/sync_modes_part.hpp"

namespace gradwire::session {
namespace {

constexpr std::size_t kMostPlanText = 256 << 10;  // of a message; a longer text is replaced by its hash

std::uint64_t bytes_of(const View& view) { return view.count * element_bytes(view.dtype); }

bool lies_within(const View& part, const View& whole) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data);
  const auto whole_begin = reinterpret_cast<std::uintptr_t>(whole.data);
  return begin >= whole_begin && begin + bytes_of(part) <= whole_begin + bytes_of(whole);
}

// A rank that already holds the values still takes part in the broadcast: it receives every view into the same scratch
// memory, where each overwrites the one before.
std::shared_ptr<std::byte> send_to_one_place(std::vector<View>& views, Runner& runner) {
  std::uint64_t largest = 0;
  for (const View& view : views) {
    largest = std::max(largest, bytes_of(view));
  }
  std::shared_ptr<std::byte> place = runner.scratch(largest);
  for (View& view : views) {
    view.data = place.get();
  }
  return place;
}

}  // namespace

// What a waiting process must have in common with the ranks, one item a line. The plan is the one for a world of all
// processes that the job started with, because nobody knows the size and the nodes of the next world yet.
std::string Newcomers::joiner_requirements() {
  const MutexLock lock(engine_->progress.state);
  plan::Plan shown = plan::make_plan(base_.policy, engine_->tensors.infos(),
                                     {.world_size = elastic_->processes(),
                                      .reduction = base_.options.reduction,
                                      .checksum = base_.options.checksum.value_or(true)});
  engine_->parts.for_each([&](const Part& part) { part.add_to(shown); });
  const std::vector<View> parameters = memory_to_send();
  std::string sizes;
  std::uint64_t bytes = 0;
  for (const View& parameter : parameters) {
    sizes += std::string(to_string(parameter.dtype)) + " x " + std::to_string(parameter.count) + "\n";
    bytes += bytes_of(parameter);
  }
  const std::string text = shown.describe();
  return "library: " + std::string(kVersion) + "\n" + (text.size() <= kMostPlanText ? text : "") +
         "plan: " + plan::fingerprint_of(text) +
         "\n[elastic] spares: " + std::to_string(elastic_->processes() - elastic_->full_size()) +
         "\nshared parameters: " + std::to_string(parameters.size()) + " of " + std::to_string(bytes) + " bytes, " +
         plan::fingerprint_of(sizes) + "\nSessionOptions: nonfinite " +
         std::to_string(static_cast<int>(base_.options.nonfinite)) + ", compare_ranks_every " +
         std::to_string(base_.options.compare_ranks_every) + "\n";
}

void Newcomers::let_in(std::span<const View> parameters) {
  if (!elastic_->expects_newcomers()) {
    return;
  }
  {
    const MutexLock lock(engine_->progress.state);
    engine_->make_plan();
  }
  share(parameters);
  lets_in_ = true;
  elastic_->let_in(joiner_requirements());
}

std::vector<View> Newcomers::memory_to_send() const {
  std::vector<View> views = shared_;
  for (const std::vector<View>& added : engine_->tensors.parameters()) {
    std::ranges::copy_if(added, std::back_inserter(views), [&](const View& view) {
      return std::ranges::none_of(shared_, [&](const View& whole) { return lies_within(view, whole); });
    });
  }
  return views;
}

std::optional<Error> Newcomers::teach() {
  const bool any = elastic_->has_newcomers();
  const std::vector<SharedOut*> shared_out = engine_->parts.shared_out();
  if (!any && std::ranges::none_of(shared_out, &SharedOut::to_move)) {
    return std::nullopt;
  }
  try {
    engine_->on_wire([&] {
      engine_->progress.wire.assert_held();
      if (any) {
        send_state();
      }
      for (SharedOut* part : shared_out) {
        part->move(elastic_->holds());
      }
    });
    if (elastic_->commit()) {
      elastic_->all_hold();
      if (any) {
        engine_->count_what_travelled();
      }
      for (SharedOut* part : shared_out) {
        part->install();
      }
      return std::nullopt;
    }
    return Error(ErrorCode::aborted, "the world changes", ErrorCause::world);
  } catch (const Error& error) {
    if (error.cause() != ErrorCause::world) {
      throw;
    }
    return error;
  }
}

void Newcomers::send_state() {
  Standing mine;
  if (elastic_->holds()) {
    mine = standing();
  }
  const std::vector<std::string> told =
      engine_->runner->peers().all_gather(encode_standing(mine), "telling newcomers what ranks hold");
  std::vector<Standing> all;
  std::transform(told.begin(), told.end(), std::back_inserter(all), decode_standing);
  const auto teacher = std::ranges::find_if(all, [](const Standing& one) { return one.holds; });
  if (teacher == all.end()) {
    throw Error(ErrorCode::too_few,
                "all ranks that held the parameters have ended before this one had them; start "
                "the job again from what it saved");
  }
  if (!elastic_->holds()) {
    resume_from(*teacher);
  }
  broadcast_memory(static_cast<int>(teacher - all.begin()));
  if (!teacher->sync_modes.late.empty()) {
    reduce_late_gradients_of(std::ranges::count_if(all, [](const Standing& one) { return one.holds; }));
  }
}

// Under local steps each rank has parameters of its own, so only newcomers write what they receive.
void Newcomers::broadcast_memory(int teacher) {
  std::vector<View> views = memory_to_send();
  SyncModes* modes = sync_modes_of(engine_->parts);
  if (modes != nullptr) {
    std::ranges::copy(modes->alike(), std::back_inserter(views));
  }
  std::shared_ptr<std::byte> nowhere;
  if (elastic_->holds() && engine_->runner->info().rank != teacher) {
    nowhere = send_to_one_place(views, *engine_->runner);
  }
  engine_->runner->broadcast(views, teacher, engine_->packs_broadcasts());
  if (DeviceSteps* device = engine_->runner->device()) {
    device->settle();
  }
  if (!elastic_->holds() && modes != nullptr) {
    modes->go_to_anchors();
  }
}

Standing Newcomers::standing() {
  const MutexLock lock(engine_->progress.state);
  Standing standing{.holds = true,
                    .step = engine_->step.number(),
                    .terms = engine_->step.terms.saved(),
                    .flush = engine_->step.terms.flushes(),
                    .syncs = under_way.syncs,
                    .coming_loss_scale = under_way.coming_loss_scale.value_or(0)};
  for (const SavedResidual& held : engine_->runner->held().save_residuals(*engine_->plan)) {
    if (held.key.site == codec::EncodeSite::local) {
      standing.with_residuals.push_back(held.key.tensor);
    }
  }
  if (const SyncModes* modes = sync_modes_of(engine_->parts)) {
    standing.sync_modes = modes->save(standing.step, SyncModes::Values::left_out);
  }
  return standing;
}

// A newcomer has no residuals. It still registers the tensors for which other ranks have some, because ranks must agree
// on that.
void Newcomers::resume_from(const Standing& others) {
  const MutexLock lock(engine_->progress.state);
  engine_->make_plan();
  exchange::ResidualStore residuals =
      engine_->runner->held().empty_store(engine_->plan->residual_form(engine_->runner->info().rank));
  for (const std::uint32_t tensor : others.with_residuals) {
    residuals.keep({tensor, codec::EncodeSite::local}, 0, engine_->tensors.infos().at(tensor).count);
  }
  for (std::uint32_t tensor = 0; !residuals.empty() && tensor < engine_->tensors.size(); ++tensor) {
    residuals.mark_moved(tensor);
  }
  under_way.syncs = others.syncs;
  under_way.coming_loss_scale = others.coming_loss_scale > 0 ? std::optional(others.coming_loss_scale) : std::nullopt;
  SavedState told{.step = others.step, .terms = others.terms, .sync_modes = others.sync_modes};  // the values follow
  for (LateGradient& late : told.sync_modes.late) {
    late.weight = 0;  // this rank has no late gradient: zeros
  }
  engine_->go_on_from(told, told.terms, std::move(residuals));
  if (others.flush) {
    engine_->step.flush_next();
  }
}

// Reduces all late gradients before newcomers receive what the others hold, since newcomers have no gradient to add. A
// mean is taken over the `ranks` that have a late gradient: their weights sum to the size of the world, because that is
// what residuals are scaled by.
void Newcomers::reduce_late_gradients_of(std::ptrdiff_t ranks) {
  bool with_weights = false;
  {
    const MutexLock lock(engine_->progress.state);
    with_weights = engine_->step.terms.is_to_be_weighted();
  }
  engine_->communication.agree_on_plan(with_weights);
  std::optional<double> weight;
  if (base_.options.reduction == Reduction::mean) {
    weight =
        elastic_->holds() ? static_cast<double>(engine_->runner->info().world_size) / static_cast<double>(ranks) : 0.0;
  }
  sync_modes_of(engine_->parts)->release_all(weight);
  engine_->communication.end_what_travels();
}

}  // namespace gradwire::session

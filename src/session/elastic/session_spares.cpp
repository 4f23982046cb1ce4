// How a process that waits becomes a rank: what it says of itself before, and what it gets of the others.
#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "gradwire/version.hpp"
#include "session/elastic/standing.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"
#include "session/session_state.hpp"

namespace gradwire {

using session::Elastic;
using session::Standing;

namespace {

constexpr std::size_t kMostPlanText = 256 << 10;  // of a message; of a longer one the hash alone

std::uint64_t bytes_of(const View& view) { return view.count * element_bytes(view.dtype); }

bool lies_within(const View& part, const View& whole) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data);
  const auto whole_begin = reinterpret_cast<std::uintptr_t>(whole.data);
  return begin >= whole_begin && begin + bytes_of(part) <= whole_begin + bytes_of(whole);
}

// Of a rank that has no use for what is sent: one place for all of it, one view after another.
std::shared_ptr<std::byte> send_to_one_place(std::vector<View>& views, session::Runner& runner) {
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

std::unique_ptr<Session::State> Session::State::make_waiting_state(std::unique_ptr<Elastic>&& elastic,
                                                                   const Policy& policy,
                                                                   const SessionOptions& options) {
  auto places = make_inproc_world(elastic->processes() + 1);  // its own place alone is taken
  auto own = std::move(places.back());
  auto state =
      std::make_unique<State>(elastic->runner_over(std::move(own)), policy, options, session::standard_parts());
  state->adopt(std::move(elastic));
  return state;
}

// What a process that waits must have alike with ranks, one item a line: the plan as in a world of all processes of the
// beginning, since none knows of how many and of which nodes the next world is.
std::string Session::State::joiner_requirements() {
  const std::lock_guard lock(progress.state);
  plan::Plan shown = plan::make_plan(policy, tensors.infos(),
                                     {.world_size = elastic->processes(),
                                      .reduction = options.reduction,
                                      .checksum = options.checksum.value_or(true)});
  shown.tables = tables.describe();
  const std::vector<View> parameters = taught();
  std::string sizes;
  std::uint64_t bytes = 0;
  for (const View& parameter : parameters) {
    sizes += std::string(to_string(parameter.dtype)) + " x " + std::to_string(parameter.count) + "\n";
    bytes += bytes_of(parameter);
  }
  const std::string text = shown.describe();
  return "library: " + std::string(kVersion) + "\n" + (text.size() <= kMostPlanText ? text : "") +
         "plan: " + plan::fingerprint_of(text) +
         "\n[elastic] spares: " + std::to_string(elastic->processes() - elastic->full_size()) +
         "\nshared parameters: " + std::to_string(parameters.size()) + " of " + std::to_string(bytes) + " bytes, " +
         plan::fingerprint_of(sizes) + "\nSessionOptions: nonfinite " +
         std::to_string(static_cast<int>(options.nonfinite)) + ", compare_ranks_every " +
         std::to_string(options.compare_ranks_every) + "\n";
}

void Session::State::let_in_others(std::span<const View> parameters) {
  if (!elastic->expects_others()) {
    return;
  }
  {
    const std::lock_guard lock(progress.state);
    make_plan();
  }
  elastic->share({parameters.begin(), parameters.end()});
  elastic->let_in(joiner_requirements());
}

bool Session::State::become_rank(std::unique_ptr<State>& self, std::span<const View> parameters) {
  try {
    self->elastic->share({parameters.begin(), parameters.end()});
    if (!self->elastic->wait_for_place(self->joiner_requirements())) {
      return false;
    }
    enter_world(self);
    self->let_in_others(parameters);
    static_cast<void>(self->elastic->take_change());
    if (self->syncs) {
      sync_elastically(self);
    }
    if (const auto scale = std::exchange(self->coming_loss_scale, {})) {
      self->set_loss_scale(*scale);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::too_few && !self->elastic->holds() && self->elastic->job_is_over()) {
      return false;  // ranks made their last step while it was on its way to them
    }
    self->leave(error);
  }
  return true;
}

std::vector<View> Session::State::taught() const {
  const std::vector<View>& shared = elastic->shared();
  std::vector<View> views = shared;
  for (const std::vector<View>& added : tensors.parameters()) {
    std::ranges::copy_if(added, std::back_inserter(views), [&](const View& view) {
      return std::ranges::none_of(shared, [&](const View& whole) { return lies_within(view, whole); });
    });
  }
  return views;
}

std::optional<Error> Session::State::teach_newcomers() {
  const bool any = elastic->has_newcomers();
  if (!any && !tables.to_move()) {
    return std::nullopt;
  }
  try {
    on_wire([&] {
      if (any) {
        teach();
      }
      tables.move(runner->peers(), elastic->holds());
    });
    if (elastic->commit()) {
      elastic->all_hold();
      if (any) {
        count_what_travelled();
      }
      try {
        tables.install();
      } catch (const std::bad_alloc&) {
        throw Error(ErrorCode::out_of_memory, "no memory for rows of tables that ranks have left behind");
      }
      return std::nullopt;
    }
    return Error(ErrorCode::aborted, "the world changes");
  } catch (const Error& error) {
    if (!session::may_be_peer_failure(error.code())) {
      throw;
    }
    return error;
  }
}

// The caller holds `wire`.
void Session::State::teach() {
  Standing mine;
  if (elastic->holds()) {
    mine = standing();
  }
  const std::vector<std::string> told =
      runner->peers().all_gather(session::encode_standing(mine), "telling newcomers what ranks hold");
  std::vector<Standing> all;
  std::transform(told.begin(), told.end(), std::back_inserter(all), session::decode_standing);
  const auto teacher = std::ranges::find_if(all, [](const Standing& one) { return one.holds; });
  if (teacher == all.end()) {
    throw Error(ErrorCode::too_few,
                "all ranks that held the parameters have ended before this one had them; start "
                "the job again from what it saved");
  }
  if (!elastic->holds()) {
    go_on_from(*teacher);
  }
  broadcast_what_is_taught(static_cast<int>(teacher - all.begin()));
  if (!teacher->late.empty()) {
    reduce_late_gradients_of(std::ranges::count_if(all, [](const Standing& one) { return one.holds; }));
  }
}

// Under local steps the others' parameters are their own: these stay as they are. The caller holds `wire`.
void Session::State::broadcast_what_is_taught(int teacher) {
  std::vector<View> views = taught();
  if (modes() != nullptr) {
    std::ranges::copy(modes()->alike(), std::back_inserter(views));
  }
  std::shared_ptr<std::byte> nowhere;
  if (elastic->holds() && runner->info().rank != teacher) {
    nowhere = send_to_one_place(views, *runner);
  }
  runner->broadcast(views, teacher);
  if (session::DeviceSteps* device = runner->device()) {
    device->settle();
  }
  if (!elastic->holds() && modes() != nullptr) {
    modes()->go_to_anchors();
  }
}

// The caller holds `wire`.
Standing Session::State::standing() {
  const std::lock_guard lock(progress.state);
  Standing standing{.holds = true,
                    .step = step.number(),
                    .loss_scale = step.loss_scale(),
                    .loss_scale_set = step.loss_scale_set(),
                    .weighted = step.is_to_be_weighted(),
                    .flush = step.flushes(),
                    .syncs = syncs,
                    .coming_loss_scale = coming_loss_scale.value_or(0)};
  for (const session::SavedState::Residual& held : runner->held().save_residuals(*plan)) {
    if (held.key.site == codec::EncodeSite::local) {
      standing.with_residuals.push_back(held.key.tensor);
    }
  }
  if (modes() != nullptr) {
    session::SavedState held;
    held.step = step.number();
    modes()->save(held, session::SyncModes::Values::left_out);
    for (const session::SavedState::Anchor& anchor : held.anchors) {
      standing.with_anchors.push_back(anchor.tensor);
    }
    standing.local_steps = std::move(held.local_steps);
    standing.results = std::move(held.results);
    standing.late = std::move(held.late);
  }
  return standing;
}

// Of what error feedback holds, a newcomer has nothing, but ranks agree on what may be held. The caller holds `wire`.
void Session::State::go_on_from(const Standing& others) {
  const std::lock_guard lock(progress.state);
  make_plan();
  exchange::ResidualStore residuals;
  for (const std::uint32_t tensor : others.with_residuals) {
    residuals.keep({tensor, codec::EncodeSite::local}, 0, tensors.infos().at(tensor).count);
  }
  for (std::uint32_t tensor = 0; !residuals.empty() && tensor < tensors.size(); ++tensor) {
    residuals.mark_moved(tensor);
  }
  runner->held().load_residuals(std::move(residuals), *plan);
  step.resume(others.step, others.loss_scale, others.loss_scale_set, others.weighted);
  set_device_step();
  syncs = others.syncs;
  coming_loss_scale = others.coming_loss_scale > 0 ? std::optional(others.coming_loss_scale) : std::nullopt;
  session::SavedState told;
  told.step = others.step;
  told.local_steps = others.local_steps;
  told.results = others.results;
  told.late = others.late;
  for (session::SavedState::Late& late : told.late) {
    late.weight = 0;  // this rank has none: zeros
  }
  for (const std::uint32_t tensor : others.with_anchors) {
    told.anchors.push_back({tensor});  // values follow
  }
  make_parts_for(told);
  step.modes().load(*plan, told);
  parts.load(told);
  if (others.flush) {
    step.flush_next();
  }
  parts.resume(step.number());
  reset_step(std::chrono::steady_clock::now());
}

void Session::State::require_between_steps(const char* call) {
  const std::lock_guard lock(progress.state);
  throw_if_failed();
  step.require_between(call);
}

void Session::State::require_nobody_comes(const char* call) const {
  if (elastic && elastic->waits()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) +
                    ": this process waits to be a rank, and communicates with nobody; leave the call out where there "
                    "are [elastic] spares, or processes may join");
  }
  if (elastic && elastic->lets_in()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) +
                    ": with [elastic] spares, or where processes may join, ranks communicate after share() "
                    "in steps, pull(), sync_parameters() and for late results alone, since a newcomer knows of nothing "
                    "else; call it before");
  }
}

bool Session::waits_to_be_rank(const char* call) const {
  if (state_->elastic && state_->elastic->waits()) {
    return true;
  }
  state_->require_nobody_comes(call);
  return false;
}

bool Session::share(std::span<const View> parameters) {
  if (state_->elastic && state_->elastic->lets_in()) {
    throw Error(ErrorCode::invalid_argument, "share: was called before; call it once, with all that ranks share");
  }
  for (const View& parameter : parameters) {
    if (element_bytes(parameter.dtype) == 0 || (parameter.data == nullptr && parameter.count > 0)) {
      throw Error(ErrorCode::invalid_argument, "share: a parameter has null data or an unknown dtype");
    }
    state_->runner->check_memory(parameter, "share: a parameter");
  }
  if (state_->elastic && state_->elastic->waits()) {
    return State::become_rank(state_, parameters);
  }
  broadcast(parameters);
  if (state_->elastic) {
    state_->let_in_others(parameters);
  }
  return true;
}

}  // namespace gradwire

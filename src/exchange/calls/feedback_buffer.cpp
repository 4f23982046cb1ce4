#include <string>
#include <utility>
#include <vector>

#include "exchange/calls/call_checks.hpp"
#include "exchange/calls/feedback_state.hpp"
#include "gradwire/error.hpp"

namespace gradwire {

FeedbackBuffer::FeedbackBuffer(std::uint64_t count, ResidualDType dtype)
    : state_(std::make_unique<State>(State{.count = count, .store = exchange::ResidualStore({.dtypes = {dtype}})})) {}
FeedbackBuffer::FeedbackBuffer(FeedbackBuffer&&) noexcept = default;
FeedbackBuffer& FeedbackBuffer::operator=(FeedbackBuffer&&) noexcept = default;
FeedbackBuffer::~FeedbackBuffer() = default;
std::uint64_t FeedbackBuffer::count() const noexcept { return state_->count; }
std::uint64_t FeedbackBuffer::bytes() const { return state_->store.bytes(); }
void FeedbackBuffer::clear() { state_->store = exchange::ResidualStore(state_->store.form()); }

std::unique_ptr<exchange::BucketResiduals> FeedbackBuffer::State::open(int rank, int world,
                                                                       exchange::CallRequest& request) {
  exchange::check_count("the feedback buffer", count, request.count);
  if (held() && world_size != world) {
    throw Error(ErrorCode::invalid_argument, "the feedback buffer holds residuals of a world of " +
                                                 std::to_string(world_size) + " ranks, this one has " +
                                                 std::to_string(world) +
                                                 "; make an exact call with it in the old one first, or clear() it");
  }
  world_size = world;
  if (store.form().rank != static_cast<std::uint32_t>(rank)) {
    exchange::ResidualForm form = store.form();
    form.rank = static_cast<std::uint32_t>(rank);
    store.set_form(std::move(form));
  }
  auto residuals = std::make_unique<exchange::BucketResiduals>(
      store, std::vector<exchange::BucketPart>{{.count = request.count}}, 1, calls++);
  request.held = residuals->held();
  return residuals;
}

}  // namespace gradwire

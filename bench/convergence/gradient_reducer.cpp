#include "bench/convergence/gradient_reducer.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"

namespace gradwire::convergence {
namespace {

class SessionReducer final : public GradientReducer {
 public:
  SessionReducer(const Policy& policy, std::shared_ptr<Transport> transport, Mlp& model)
      // Ranks already outnumber cores: a progress thread for each would only add switches between threads.
      : session_(std::move(transport), policy,
                 {.reduction = Reduction::mean, .checksum = false, .threading = Threading::main_thread}) {
    for (const Mlp::Tensor& tensor : model.tensors()) {
      ids_.push_back(
          session_.add(tensor.name, view(model.gradients().data() + tensor.first, tensor.count), tensor.dimensions));
    }
    std::reverse(ids_.begin(), ids_.end());
  }

  void reduce() override {
    for (const TensorId id : ids_) {
      session_.ready(id);
    }
    session_.finish();
  }
  [[nodiscard]] Statistics statistics() const override { return session_.statistics().all(); }
  [[nodiscard]] std::uint64_t residual_bytes() override { return session_.residual_bytes(); }

 private:
  Session session_;
  std::vector<TensorId> ids_;  // in the order in which a backward pass makes gradients
};

class BareReducer final : public GradientReducer {
 public:
  BareReducer(const Policy& policy, std::shared_ptr<Transport> transport, Mlp& model)
      : communicator_(std::move(transport), {.checksum = false}),
        gradients_(view(model.gradients().data(), model.gradients().size())),
        options_{.codec = policy.defaults.codec,
                 .algorithm = policy.defaults.algorithm,
                 .reduction = Reduction::mean,
                 .second_hop = policy.defaults.second_hop} {}

  void reduce() override { statistics_.add(communicator_.all_reduce(gradients_, options_)); }
  [[nodiscard]] Statistics statistics() const override { return statistics_; }
  [[nodiscard]] std::uint64_t residual_bytes() override { return 0; }

 private:
  Communicator communicator_;
  View gradients_;
  CallOptions options_;
  Statistics statistics_;
};

}  // namespace

std::unique_ptr<GradientReducer> make_reducer(const Reducing& reducing, std::shared_ptr<Transport> transport,
                                              Mlp& model) {
  if (reducing.bare) {
    return std::make_unique<BareReducer>(reducing.policy, std::move(transport), model);
  }
  return std::make_unique<SessionReducer>(reducing.policy, std::move(transport), model);
}

}  // namespace gradwire::convergence

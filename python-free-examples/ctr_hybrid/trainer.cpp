#include "trainer.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/optim/adagrad.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <stdexcept>

#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"
#include "gradwire/torch.hpp"

namespace ctr_hybrid {
namespace {

constexpr float kEpsilon = 1e-10F;
constexpr std::uint32_t kDenseWidth = 256;  // of the rows that hold dense layers
constexpr std::uint64_t kCacheBytes = 64ULL << 20;

gradwire::TableOptions table_options(const Data& data, const TrainerOptions& options) {
  gradwire::TableOptions table{.name = kTableName, .rows = data.table_rows(), .width = options.width};
  table.optimizer = gradwire::RowOptimizer::adagrad;
  table.learning_rate = static_cast<float>(options.learning_rate);
  table.epsilon = kEpsilon;
  table.initial_scale = 0.05F;
  table.seed = options.seed;
  return table;
}

TrainerStatistics::Ages ages_of(const gradwire::TableStatistics& table) {
  const auto reads = static_cast<double>(table.rows_pulled);
  return {.maximum = table.maximum_age, .clocks = table.mean_age * reads, .reads = reads};
}

using EmulatedLink = std::optional<gradwire::EmulatedLink>;

std::shared_ptr<gradwire::Transport> over(const EmulatedLink& link) {
  auto transport = gradwire::mpi::make_transport(MPI_COMM_WORLD);
  return link ? gradwire::make_throttled(std::move(transport), *link) : transport;
}

/// The part that all modes share: the model, and its gradients and predictions for one batch.
class Base : public Trainer {
 public:
  Base(const Data& data, const TrainerOptions& options)
      : data_(data), options_(options), link_(emulated(options.link)), model_(make_model(data, options)) {
    MPI_Comm_size(MPI_COMM_WORLD, &world_);
  }

 protected:
  static EmulatedLink emulated(const std::string& link) {
    return link.empty() ? EmulatedLink() : gradwire::EmulatedLink(gradwire::LinkSchedule::parse(link));
  }
  static Model make_model(const Data& data, const TrainerOptions& options) {
    torch::manual_seed(options.seed);
    return Model(static_cast<std::int64_t>(data.fields() * options.width + data.numbers()), options.hidden);
  }

  /// Runs forward and backward pass; the gradients of the mean loss are then in the parameters. Returns the gradients
  /// of the embedded rows.
  torch::Tensor learn(const Batch& batch, std::span<float> rows) {
    torch::Tensor embedded = embedded_of(batch, rows).requires_grad_(true);
    const torch::Tensor clicks = tensor_of(batch.clicks, 1).squeeze(1);
    const torch::Tensor loss = torch::nn::functional::binary_cross_entropy_with_logits(
        model_(embedded, tensor_of(batch.numbers, data_.numbers())), clicks);
    loss.backward();
    return embedded.grad().contiguous();
  }

  std::vector<float> logits_of(const Batch& batch, std::span<float> rows) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor logits =
        model_(embedded_of(batch, rows), tensor_of(batch.numbers, data_.numbers())).contiguous();
    const auto* values = logits.data_ptr<float>();
    return {values, values + logits.numel()};
  }

  /// Returns memory for a batch's rows.
  std::span<float> room_for(const Batch& batch) {
    rows_.resize(batch.rows.size() * options_.width);
    return rows_;
  }

  [[nodiscard]] float per_rank() const { return 1.0F / static_cast<float>(world_); }

  const Data& data_;
  TrainerOptions options_;
  EmulatedLink link_;
  Model model_;
  int world_ = 1;

 private:
  static torch::Tensor tensor_of(const std::vector<float>& values, std::uint64_t columns) {
    auto* data = const_cast<float*>(values.data());  // the tensor is only read
    return torch::from_blob(data,
                            {static_cast<std::int64_t>(values.size() / columns), static_cast<std::int64_t>(columns)});
  }
  torch::Tensor embedded_of(const Batch& batch, std::span<float> rows) const {
    return torch::from_blob(rows.data(), {static_cast<std::int64_t>(batch.clicks.size()),
                                          static_cast<std::int64_t>(data_.fields() * options_.width)});
  }
  std::vector<float> rows_;
};

class Synchronous final : public Base {
 public:
  Synchronous(const Data& data, const TrainerOptions& options)
      : Base(data, options),
        table_(data.table_rows() * options.width),
        gradients_(table_.size()),
        sums_(table_.size()),
        session_(gradwire::mpi::make_session(over(link_), gradwire::Policy::uniform("exact"))),
        id_(session_.add(kTableName, gradwire::view(gradients_.data(), gradients_.size()))),
        adapter_(session_, model_),
        optimizer_(model_->parameters(), torch::optim::AdagradOptions(options.learning_rate).eps(kEpsilon)) {
    // The table starts with the same values as in the other modes.
    gradwire::Table start(gradwire::make_inproc_world(1)[0], table_options(data, options));
    std::vector<std::uint64_t> ids(data.table_rows());
    for (std::uint64_t id = 0; id < ids.size(); ++id) {
      ids[id] = id;
    }
    start.pull(ids, table_);
  }

  void step(const Batch& batch, const Batch& /*next*/) override {
    optimizer_.zero_grad();
    std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    const torch::Tensor gradients = learn(batch, look_up(batch));
    const auto* from = gradients.data_ptr<float>();
    for (const std::uint64_t row : batch.rows) {
      float* to = gradients_.data() + row * options_.width;
      for (std::uint32_t i = 0; i < options_.width; ++i) {
        to[i] += *from++;
      }
    }
    session_.ready(id_);
    adapter_.finish();
    optimizer_.step();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (gradients_[i] != 0) {
        sums_[i] += gradients_[i] * gradients_[i];
        table_[i] -= static_cast<float>(options_.learning_rate) * gradients_[i] / (std::sqrt(sums_[i]) + kEpsilon);
      }
    }
  }

  std::vector<float> predict(const Batch& batch) override { return logits_of(batch, look_up(batch)); }

  [[nodiscard]] TrainerStatistics statistics() const override {
    gradwire::Statistics all;
    for (const gradwire::SessionStatistics::Group& group : session_.statistics().groups) {
      all.add(group.totals);
    }
    return {.bytes_sent = all.bytes_sent, .rows = {}, .dense = {}};
  }

 private:
  std::span<float> look_up(const Batch& batch) {
    const std::span<float> rows = room_for(batch);
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      std::copy_n(table_.begin() + static_cast<std::ptrdiff_t>(batch.rows[i] * options_.width), options_.width,
                  rows.begin() + static_cast<std::ptrdiff_t>(i * options_.width));
    }
    return rows;
  }

  std::vector<float> table_, gradients_, sums_;  // sums of squared gradients
  gradwire::Session session_;
  gradwire::TensorId id_;
  gradwire::torch::Adapter adapter_;
  torch::optim::Adagrad optimizer_;
};

class Hybrid final : public Base {
 public:
  Hybrid(const Data& data, const TrainerOptions& options)
      : Base(data, options),
        session_(gradwire::mpi::make_session(over(link_), options.policy)),
        adapter_(session_, model_),
        optimizer_(model_->parameters(), torch::optim::AdagradOptions(options.learning_rate).eps(kEpsilon)),
        table_(gradwire::mpi::make_table(over(link_), hybrid_table(data, options))) {}

  void step(const Batch& batch, const Batch& next) override {
    const std::span<float> rows = room_for(batch);
    table_.pull(batch.rows, rows);
    table_.prefetch(next.rows);
    optimizer_.zero_grad();
    const torch::Tensor gradients = learn(batch, rows).mul_(per_rank());
    table_.push(batch.rows, {gradients.data_ptr<float>(), static_cast<std::size_t>(gradients.numel())});
    table_.tick();
    adapter_.finish();
    optimizer_.step();
  }

  std::vector<float> predict(const Batch& batch) override {
    table_.synchronize();
    const std::span<float> rows = room_for(batch);
    table_.pull(batch.rows, rows);
    std::vector<float> logits = logits_of(batch, rows);
    table_.synchronize();  // no rank goes on while another one still predicts
    return logits;
  }

  [[nodiscard]] TrainerStatistics statistics() const override {
    gradwire::Statistics dense;
    for (const gradwire::SessionStatistics::Group& group : session_.statistics().groups) {
      dense.add(group.totals);
    }
    const gradwire::TableStatistics rows = table_.statistics();
    return {.bytes_sent = dense.bytes_sent + rows.traffic.bytes_sent, .rows = ages_of(rows), .dense = {}};
  }

 private:
  gradwire::Session session_;
  gradwire::torch::Adapter adapter_;
  torch::optim::Adagrad optimizer_;
  gradwire::Table table_;
};

/// Holds dense layers as rows of a table of their own, as a parameter server does.
class Asynchronous final : public Base {
 public:
  Asynchronous(const Data& data, const TrainerOptions& options)
      : Base(data, options), table_(make_table(data, options, link_)), dense_(make_dense(*model_, options, link_)) {
    for (std::uint64_t row = 0; row < dense_.options().rows; ++row) {
      dense_ids_.push_back(row);
    }
    values_.resize(dense_ids_.size() * kDenseWidth);
    copy_parameters([](torch::Tensor& parameter, float* value) {
      std::copy_n(parameter.data_ptr<float>(), parameter.numel(), value);
    });
    if (dense_.rank() == 0) {
      dense_.assign(dense_ids_, values_);
    }
    dense_.synchronize();
  }

  void step(const Batch& batch, const Batch& /*next*/) override {
    const std::span<float> rows = room_for(batch);
    table_.pull(batch.rows, rows);
    pull_dense();
    model_->zero_grad();
    const torch::Tensor gradients = learn(batch, rows).mul_(per_rank());
    table_.push(batch.rows, {gradients.data_ptr<float>(), static_cast<std::size_t>(gradients.numel())});
    copy_parameters([&](torch::Tensor& parameter, float* value) {
      const auto* gradient = parameter.grad().data_ptr<float>();
      std::transform(gradient, gradient + parameter.numel(), value, [&](float g) { return g * per_rank(); });
    });
    dense_.push(dense_ids_, values_);
    table_.tick();
    dense_.tick();
  }

  std::vector<float> predict(const Batch& batch) override {
    dense_.synchronize();
    table_.synchronize();
    const std::span<float> rows = room_for(batch);
    table_.pull(batch.rows, rows);
    pull_dense();
    std::vector<float> logits = logits_of(batch, rows);
    table_.synchronize();
    return logits;
  }

  [[nodiscard]] TrainerStatistics statistics() const override {
    const gradwire::TableStatistics rows = table_.statistics();
    const gradwire::TableStatistics dense = dense_.statistics();
    return {.bytes_sent = rows.traffic.bytes_sent + dense.traffic.bytes_sent,
            .rows = ages_of(rows),
            .dense = ages_of(dense)};
  }

 private:
  static gradwire::Table make_table(const Data& data, const TrainerOptions& options, const EmulatedLink& link) {
    gradwire::TableOptions table = table_options(data, options);
    table.staleness = gradwire::TableOptions::kUnbounded;
    table.cache_bytes = kCacheBytes;
    return gradwire::mpi::make_table(over(link), table);
  }
  static gradwire::Table make_dense(const torch::nn::Module& model, const TrainerOptions& options,
                                    const EmulatedLink& link) {
    std::uint64_t elements = 0;
    for (const torch::Tensor& parameter : model.parameters()) {
      elements += static_cast<std::uint64_t>(parameter.numel());
    }
    gradwire::TableOptions table{
        .name = "dense", .rows = (elements + kDenseWidth - 1) / kDenseWidth, .width = kDenseWidth};
    table.optimizer = gradwire::RowOptimizer::adagrad;
    table.learning_rate = static_cast<float>(options.learning_rate);
    table.epsilon = kEpsilon;
    table.staleness = gradwire::TableOptions::kUnbounded;
    return gradwire::mpi::make_table(over(link), table);
  }

  /// Calls copy(parameter, its place among the dense rows) for each parameter.
  template <class Copy>
  void copy_parameters(Copy copy) {
    const torch::NoGradGuard no_grad;
    float* value = values_.data();
    for (torch::Tensor& parameter : model_->parameters()) {
      copy(parameter, value);
      value += parameter.numel();
    }
  }
  void pull_dense() {
    dense_.pull(dense_ids_, values_);
    copy_parameters([](torch::Tensor& parameter, const float* value) {
      std::copy_n(value, parameter.numel(), parameter.data_ptr<float>());
    });
  }

  gradwire::Table table_, dense_;
  std::vector<std::uint64_t> dense_ids_;
  std::vector<float> values_;
};

}  // namespace

gradwire::Policy hybrid_policy(std::uint64_t staleness, const std::string& codec) {
  return gradwire::Policy::parse("[defaults]\ncodec = \"exact\"\nsmall = \"off\"\n[[rule]]\nmatch = \"" +
                                     std::string(kTableName) + "\"\ncodec = \"" + codec +
                                     "\"\nsync = { rows = true, staleness = " + std::to_string(staleness) + " }\n",
                                 "hybrid");
}

gradwire::TableOptions hybrid_table(const Data& data, const TrainerOptions& options) {
  gradwire::TableOptions table = gradwire::table_options(options.policy, kTableName, table_options(data, options));
  table.cache_bytes = kCacheBytes;
  table.read_own_writes = false;
  return table;
}

std::unique_ptr<Trainer> make_trainer(const std::string& mode, const Data& data, const TrainerOptions& options) {
  if (mode == "synchronous") {
    return std::make_unique<Synchronous>(data, options);
  }
  if (mode == "hybrid") {
    return std::make_unique<Hybrid>(data, options);
  }
  if (mode == "asynchronous") {
    return std::make_unique<Asynchronous>(data, options);
  }
  throw std::invalid_argument("unknown mode \"" + mode + "\"; there are synchronous, hybrid and asynchronous");
}

}  // namespace ctr_hybrid

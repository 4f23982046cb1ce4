// Data-parallel training, the example of docs/tutorial: a network of two layers learns which of 32 planted directions a
// random vector points to most. Each rank computes the gradient of its own samples, the gradients are averaged over the
// ranks, and all ranks make the same step of AdamW.
//
//   mpirun -np 2 PROGRAM [STEPS ...]
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

constexpr int kInputs = 128, kHidden = 2048, kClasses = 32, kBatch = 32, kMicroBatches = 4;
constexpr float kLearningRate = 2e-3F, kDecay = 1e-2F, kBeta1 = 0.9F, kBeta2 = 0.99F, kClip = 0.5F;

struct Tensor {
  std::string name;
  std::vector<float> value, gradient, m, v;
};

std::vector<float> random_values(int count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

/// y[c] += sum over r of x[r] w[r][c]
void multiply_add(const float* x, int rows, const float* w, int columns, float* y) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      y[c] += x[r] * w[r * columns + c];
    }
  }
}

struct Network {
  std::vector<Tensor> tensors;  // weights are [input][output]
  const std::vector<float> planted = random_values(kInputs * kClasses, 1.0F, 1);

  Network() {
    add("layer1.weight", random_values(kInputs * kHidden, 1 / std::sqrt(float(kInputs)), 2));
    add("layer1.bias", std::vector<float>(kHidden));
    add("layer2.weight", random_values(kHidden * kClasses, 0.5F / std::sqrt(float(kHidden)), 3));
    add("layer2.bias", std::vector<float>(kClasses));
  }

  void add(const std::string& name, const std::vector<float>& value) {
    const std::vector<float> zeros(value.size());
    tensors.push_back({name, value, zeros, zeros, zeros});
  }

  /// Adds the gradient of the mean loss of `samples` new samples, times `factor`, to the gradients. Returns that loss.
  double backward(int samples, unsigned seed, double factor) {
    const std::vector<float> inputs = random_values(samples * kInputs, 1.0F, seed);
    Tensor &w1 = tensors[0], &b1 = tensors[1], &w2 = tensors[2], &b2 = tensors[3];
    double loss = 0;
    for (long s = 0; s < samples; ++s) {
      const float* input = &inputs[s * kInputs];
      std::vector<float> wanted(kClasses), hidden = b1.value, score = b2.value;
      multiply_add(input, kInputs, planted.data(), kClasses, wanted.data());
      const auto target = std::max_element(wanted.begin(), wanted.end()) - wanted.begin();

      multiply_add(input, kInputs, w1.value.data(), kHidden, hidden.data());
      std::transform(hidden.begin(), hidden.end(), hidden.begin(), [](float x) { return std::max(x, 0.0F); });
      multiply_add(hidden.data(), kHidden, w2.value.data(), kClasses, score.data());

      const float highest = *std::max_element(score.begin(), score.end());
      float sum = 0;
      for (float& x : score) {
        sum += x = std::exp(x - highest);  // from here on `score` holds what the softmax divides by `sum`
      }
      loss -= double(std::log(score[target] / sum)) / samples;

      std::vector<float> error(kHidden);
      for (int c = 0; c < kClasses; ++c) {
        score[c] = (score[c] / sum - (c == target ? 1.0F : 0.0F)) * float(factor / samples);
        b2.gradient[c] += score[c];
      }
      for (int h = 0; h < kHidden; ++h) {
        for (int c = 0; c < kClasses; ++c) {
          w2.gradient[h * kClasses + c] += hidden[h] * score[c];
          error[h] += w2.value[h * kClasses + c] * score[c];
        }
        error[h] = hidden[h] > 0 ? error[h] : 0.0F;
        b1.gradient[h] += error[h];
      }
      for (int i = 0; i < kInputs; ++i) {
        for (int h = 0; h < kHidden; ++h) {
          w1.gradient[i * kHidden + h] += input[i] * error[h];
        }
      }
    }
    return loss;
  }

  void clear_gradients() {
    for (Tensor& t : tensors) {
      std::fill(t.gradient.begin(), t.gradient.end(), 0.0F);
    }
  }

  /// Step number `step`, from 1, of AdamW, with the gradients times `factor`.
  void update(int step, float factor) {
    const float m_scale = 1 / (1 - std::pow(kBeta1, float(step))), v_scale = 1 / (1 - std::pow(kBeta2, float(step)));
    for (Tensor& t : tensors) {
      for (std::size_t i = 0; i < t.value.size(); ++i) {
        const float gradient = factor * t.gradient[i];
        t.m[i] = kBeta1 * t.m[i] + (1 - kBeta1) * gradient;
        t.v[i] = kBeta2 * t.v[i] + (1 - kBeta2) * gradient * gradient;
        t.value[i] -= kLearningRate * (m_scale * t.m[i] / (std::sqrt(v_scale * t.v[i]) + 1e-8F) + kDecay * t.value[i]);
      }
    }
  }
};

void train(const std::shared_ptr<gradwire::Processes>& processes, int steps, const gradwire::Policy& policy,
           const std::string& checkpoints) {
  Network network;
  gradwire::Session session(processes, policy);
  std::vector<gradwire::TensorId> ids;
  std::vector<gradwire::View> shared;  // what is the same on all ranks
  for (Tensor& t : network.tensors) {
    for (std::vector<float>* values : {&t.value, &t.m, &t.v}) {
      shared.push_back(gradwire::view(values->data(), values->size()));
    }
    ids.push_back(session.add(t.name, gradwire::view(t.gradient.data(), t.gradient.size())));
  }
  float step_loss = 0;
  ids.push_back(session.add("loss", gradwire::view(&step_loss, 1)));
  double scale = 65536;
  shared.push_back(gradwire::view(&scale, 1));
  if (!checkpoints.empty()) {
    session.restore(checkpoints, shared);
  }
  if (!session.share(shared)) {
    return;  // a spare that was not needed
  }
  session.set_loss_scale(scale);
  const double start = MPI_Wtime();
  double loss = 0;  // mean of the last 20 steps
  while (int(session.step()) < steps) {
    const int step = int(session.step()) + 1, rank = session.rank();
    network.clear_gradients();
    step_loss = 0;
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      const int seed = 1000 * (kMicroBatches * step + micro) + rank;
      step_loss += float(network.backward(kBatch, seed, scale / kMicroBatches)) / kMicroBatches;
    }
    if (step == 30 && processes->self() == 1) {
      std::raise(SIGKILL);
    }
    for (const gradwire::TensorId id : ids) {
      session.ready(id);
    }
    const gradwire::StepOutcome outcome = session.finish();  // step_loss, too, is a mean now
    if (outcome.repeat) {
      if (session.rank() == 0) {
        std::printf("step %d begins again on %d ranks\n", step, session.world_size());
      }
      continue;
    }
    if (outcome.skipped || outcome.nonfinite) {
      scale /= 2;
      session.set_loss_scale(scale);
    } else {
      double squares = 0;
      for (const Tensor& t : network.tensors) {
        squares += std::inner_product(t.gradient.begin(), t.gradient.end(), t.gradient.begin(), 0.0);
      }
      network.update(step, float(std::min(1.0, kClip * scale / std::sqrt(squares)) / scale));
      loss += step_loss / 20;
    }
    if (step % 20 == 0) {
      if (rank == 0) {
        const double megabytes = 1e-6 * double(session.statistics().all().bytes_sent);
        std::printf("step %d loss %.4f MB %.1f seconds %.2f scale %.0f\n", step, loss, megabytes, MPI_Wtime() - start,
                    scale);
      }
      loss = 0;
    }
    if (step % 20 == 0 && !checkpoints.empty()) {
      session.checkpoint(checkpoints, std::vector<gradwire::ConstView>(shared.begin(), shared.end()));
    }
  }
  session.confirm();  // before a model is written
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 100;
  const gradwire::Policy policy = argc > 2 ? gradwire::Policy::load(argv[2]) : gradwire::Policy();
  const std::string checkpoints = argc > 3 ? argv[3] : "";
  gradwire::mpi::elastic_main(argc, argv, [&](const auto& group) { train(group, steps, policy, checkpoints); });
}

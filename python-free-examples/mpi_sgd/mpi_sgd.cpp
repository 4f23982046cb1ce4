// The job of existing_mpi_job with its gradients all-reduced by gradwire, int8 on the wire: compare the two files. MPI
// is initialised for threads, a session is made, the loop of MPI_Allreduce became ready() and finish(), and the last
// lines print the bytes sent.
//
//   mpirun -np 4 mpi_sgd [STEPS [CODEC]]
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

constexpr int kInputs = 128, kHidden = 256, kOutputs = 64, kBatch = 32, kEvaluation = 512;
constexpr float kLearningRate = 0.01F, kMomentum = 0.9F;

struct Tensor {
  std::string name;
  std::vector<float> value, gradient, velocity;
  gradwire::TensorId id{};
};

struct Network {
  std::vector<Tensor> tensors;  // w1 [hidden][inputs], b1, w2 [outputs][hidden], b2

  Network(std::mt19937& random, float scale) {
    add("w1", kHidden * kInputs, random, scale / std::sqrt(float(kInputs)));
    add("b1", kHidden, random, 0.1F * scale);
    add("w2", kOutputs * kHidden, random, scale / std::sqrt(float(kHidden)));
    add("b2", kOutputs, random, 0.1F * scale);
  }

  void forward(const float* input, float* hidden, float* output) const {
    layer(tensors[0].value.data(), tensors[1].value.data(), input, kInputs, hidden, kHidden);
    for (int h = 0; h < kHidden; ++h) {
      hidden[h] = std::tanh(hidden[h]);
    }
    layer(tensors[2].value.data(), tensors[3].value.data(), hidden, kHidden, output, kOutputs);
  }

  /// Adds one sample's gradient of half the squared error; `error` is output - target, times the sample's weight.
  void backward(const float* input, const float* hidden, const float* error) {
    std::vector<float> delta(kHidden, 0.0F);
    for (int o = 0; o < kOutputs; ++o) {
      tensors[3].gradient[o] += error[o];
      for (int h = 0; h < kHidden; ++h) {
        tensors[2].gradient[o * kHidden + h] += error[o] * hidden[h];
        delta[h] += error[o] * tensors[2].value[o * kHidden + h];
      }
    }
    for (int h = 0; h < kHidden; ++h) {
      delta[h] *= 1 - hidden[h] * hidden[h];
      tensors[1].gradient[h] += delta[h];
      for (int i = 0; i < kInputs; ++i) {
        tensors[0].gradient[h * kInputs + i] += delta[h] * input[i];
      }
    }
  }

 private:
  void add(const std::string& name, int count, std::mt19937& random, float scale) {
    std::normal_distribution<float> normal(0.0F, scale);
    Tensor tensor{name, std::vector<float>(count), std::vector<float>(count), std::vector<float>(count), {}};
    for (float& x : tensor.value) {
      x = normal(random);
    }
    tensors.push_back(tensor);
  }

  static void layer(const float* weight, const float* bias, const float* in, int inputs, float* out, int outputs) {
    for (int o = 0; o < outputs; ++o) {
      float partial[8] = {bias[o]};
      for (int i = 0; i < inputs; ++i) {
        partial[i % 8] += weight[o * inputs + i] * in[i];
      }
      out[o] = 0;
      for (const float p : partial) {
        out[o] += p;
      }
    }
  }
};

/// Returns the mean squared error over `samples` new samples; with `learn`, adds the gradients to `network`.
double run_samples(Network& network, const Network& planted, int samples, std::mt19937& random, bool learn) {
  std::normal_distribution<float> normal;
  std::vector<float> input(kInputs), hidden(kHidden), output(kOutputs), target(kOutputs);
  double loss = 0;
  for (int s = 0; s < samples; ++s) {
    for (float& x : input) {
      x = normal(random);
    }
    planted.forward(input.data(), hidden.data(), target.data());
    network.forward(input.data(), hidden.data(), output.data());
    for (int o = 0; o < kOutputs; ++o) {
      const float error = output[o] - target[o];
      loss += double(error) * error / kOutputs / samples;
      output[o] = error / float(samples);
    }
    if (learn) {
      network.backward(input.data(), hidden.data(), output.data());
    }
  }
  return loss;
}

void train(int steps, const gradwire::Policy& policy) {
  int rank = 0, world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  std::mt19937 planted_random(1), start_random(2), data_random(1000 + rank), evaluation_random(3);
  const Network planted(planted_random, 1.0F);
  Network network(start_random, 0.5F);
  auto session = gradwire::mpi::make_session(MPI_COMM_WORLD, policy);
  for (Tensor& t : network.tensors) {
    session.broadcast(gradwire::view(t.value.data(), t.value.size()));
    t.id = session.add(t.name, gradwire::view(t.gradient.data(), t.gradient.size()));
  }

  for (int step = 1; step <= steps; ++step) {
    for (Tensor& t : network.tensors) {
      std::fill(t.gradient.begin(), t.gradient.end(), 0.0F);
    }
    double loss = run_samples(network, planted, kBatch, data_random, true);
    for (Tensor& t : network.tensors) {
      session.ready(t.id);
    }
    session.finish();  // every gradient now holds the mean over the ranks
    for (Tensor& t : network.tensors) {
      for (std::size_t i = 0; i < t.value.size(); ++i) {
        t.velocity[i] = kMomentum * t.velocity[i] + t.gradient[i];
        t.value[i] -= kLearningRate * t.velocity[i];
      }
    }
    if (step % 50 == 0) {
      MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      if (rank == 0) {
        std::printf("step %d loss %.6f\n", step, loss / world);
      }
    }
  }
  const double final_loss = run_samples(network, planted, kEvaluation, evaluation_random, false);
  if (rank == 0) {
    std::printf("final loss %.6f\n", final_loss);
  }
  if (rank == 0) {
    std::printf("%s", session.statistics().to_text().c_str());
  }
}

int main(int argc, char** argv) {
  int thread_level = 0;  // with MPI_THREAD_MULTIPLE gradwire communicates in the background
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  gradwire::Policy policy;  // int8, small tensors bf16
  if (argc > 2) {
    policy = gradwire::Policy::uniform(argv[2]);
  }
  train(argc > 1 ? std::atoi(argv[1]) : 300, policy);
  MPI_Finalize();
}

// nccl_mlp with a session: gradients are compressed and exchanged while the backward pass goes on. Compare the two
// files.
//   launch 4 nccl_mlp_session [STEPS [CODEC]]
#include <nccl.h>

#include <exception>
#include <string>

#include "gradwire/nccl.hpp"
#include "job.cuh"

static int train(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  Job job;
  Network planted(1, job.stream), network(100, job.stream);
  gradwire::Session session = gradwire::nccl::make_session(
      job.communicator, job.stream,
      gradwire::Policy::parse("version = 1\n[defaults]\ncodec = \"" + std::string(argc > 2 ? argv[2] : "int8") + "\"\n",
                              "argument"));
  std::vector<gradwire::TensorId> ids;
  for (const Tensor& t : network.tensors) {
    ids.push_back(session.add(t.name, gradwire::view(t.gradient, t.count)));
  }
  float* input = device_floats(std::size_t{kBatch} * kInputs);

  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  CUDA_CHECK(cudaEventRecord(begin, job.stream));
  for (int step = 1; step <= steps; ++step) {
    fill<<<blocks(kBatch * kInputs), 256, 0, job.stream>>>(input, kBatch * kInputs, 1.7F,
                                                           1000ULL + step * job.world + job.rank);
    const float* target = planted.forward(input);
    network.forward(input);
    network.backward(input, target);
    for (std::size_t i = ids.size(); i-- > 0;) {
      session.ready(ids[i]);  // its bucket starts after the work that is in the stream now
    }
    session.finish();  // work enqueued to the stream from here on sees the means
    network.step(1.0F);
    if (step % 50 == 0 || step == steps) {
      const float loss = mean_loss(job, network);
      if (job.rank == 0) {
        std::printf("step %d loss %.6f\n", step, loss);
      }
    }
  }
  CUDA_CHECK(cudaEventRecord(end, job.stream));
  CUDA_CHECK(cudaEventSynchronize(end));
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  if (job.rank == 0) {
    std::printf("%.2f ms a step on %d ranks\n%s\n", milliseconds / static_cast<float>(steps), job.world,
                session.statistics().to_text().c_str());
  }
  return ranks_agree(job, network) ? 0 : 1;
}

int main(int argc, char** argv) {
  try {
    return train(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_mlp_session: %s\n", error.what());
    return 1;
  }
}

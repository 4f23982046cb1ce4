// Data-parallel SGD on GPUs as many NCCL jobs have it: one process for each rank, ncclAllReduce of each gradient. It
// does not use gradwire. A network learns a planted one of the same shape from synthetic data.
//   launch 4 nccl_mlp [STEPS]     or under mpirun, with NCCL_COMM_ID=host:port in every rank's environment
// The same file with another #include is nccl_mlp_replaced, whose gradients are sent compressed; nccl_mlp_session is
// the same job with a session.
#include <nccl.h>

#include "job.cuh"

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  Job job;
  Network planted(1, job.stream), network(100, job.stream);
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
    for (const Tensor& t : network.tensors) {
      NCCL_CHECK(ncclAllReduce(t.gradient, t.gradient, t.count, ncclFloat, ncclAvg, job.communicator, job.stream));
    }
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
    std::printf("%.2f ms a step on %d ranks\n", milliseconds / static_cast<float>(steps), job.world);
  }
  return ranks_agree(job, network) ? 0 : 1;
}

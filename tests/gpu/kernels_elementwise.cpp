// Checks folding, conversion, buckets and the step, and two streams at once.
#include <algorithm>
#include <limits>
#include <memory>

#include "kernels/device/operations.hpp"
#include "kernels/device/status.hpp"
#include "tests/gpu/kernel_jobs.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::gpu {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

std::string pair_name(DType from, DType to) {
  return std::string(to_string(from)) + " to " + std::string(to_string(to));
}

// With `on_device` the kernel reads factor and divisor in device memory.
void convert_both(Check& check, void* stream, DType from, DType to, std::uint32_t count, double divisor, bool in_place,
                  bool on_device = false) {
  const std::string what =
      "convert " + pair_name(from, to) + ", " + std::to_string(count) + " elements" + (in_place ? ", in place" : "");
  Bytes input = tensor(from, count, check.seed(), Kind::special);
  Bytes wanted(count * element_bytes(to));
  test::run_convert(input.data(), from, wanted.data(), to, count, 0.7, divisor);
  const Memory device_input(input, in_place ? 0 : element_bytes(from));
  const Memory output(wanted.size(), element_bytes(to));
  const std::vector<double> numbers{0.7, divisor};
  const Memory scalars(bytes_of(numbers));
  kernels::convert(device_input.data(), from, in_place ? device_input.data() : output.data(), to, count,
                   on_device ? 1 : 0.7, on_device ? scalars.as<double>() : nullptr, on_device ? 1 : divisor,
                   on_device ? scalars.as<double>() + 1 : nullptr, stream);
  check.same_elements(to, read_intact(check, in_place ? device_input : output, what), wanted, what);
}

// Special values have -0 where the residual is 0: they stay.
void fold_both(Check& check, void* stream, DType dtype, std::uint32_t count, Kind kind = Kind::plain) {
  const std::string what = "fold into " + std::string(to_string(dtype)) + ", " + std::to_string(count) + " elements";
  Bytes values = tensor(dtype, count, check.seed() + 1, kind);
  Bytes residual = tensor(DType::f32, count, check.seed(), kind);
  const Memory device_values(values);
  const Memory device_residual(residual);
  test::run_fold(reinterpret_cast<float*>(residual.data()), 0.3, values.data(), dtype, count);
  kernels::fold(device_residual.as<float>(), 0.3, nullptr, device_values.data(), dtype, count, stream);
  check.same_elements(dtype, read_intact(check, device_values, what), values, what);
  check.same_bytes(read_intact(check, device_residual, what), residual, what + ": residual");
}

// Rescales Gaussian numbers, zeros and NaN, as powers of a scale and as values.
void rescale_both(Check& check, void* stream, DType from, DType to, std::uint32_t count, bool divides,
                  Kind kind = Kind::special) {
  const std::string what = "rescale " + pair_name(from, to) + ", " + std::to_string(count) + " elements";
  const Bytes scale = tensor(DType::f32, count, check.seed() + 2, kind);
  const Bytes values = tensor(from, count, check.seed(), kind);
  Bytes powers(count);
  Bytes wanted(count * element_bytes(to));
  kernels::DeviceStatus host_status;
  test::run_measure_scale(reinterpret_cast<const float*>(scale.data()), count,
                          reinterpret_cast<std::uint8_t*>(powers.data()));
  kernels::RescaleJob job{.from = values.data(),
                          .from_dtype = from,
                          .factor = 0.7,
                          .to = wanted.data(),
                          .to_dtype = to,
                          .powers = reinterpret_cast<const std::uint8_t*>(powers.data()),
                          .count = count,
                          .divides = divides,
                          .status = &host_status};
  test::run_rescale(job);
  const Memory device_scale(scale, sizeof(float));
  const Memory device_powers(powers.size());
  const Memory device_values(values, element_bytes(from));
  const Memory output(wanted.size());
  const DeviceCall call({});
  kernels::measure_scale(device_scale.as<float>(), count, device_powers.as<std::uint8_t>(), stream);
  job.from = device_values.data();
  job.to = output.data();
  job.powers = device_powers.as<std::uint8_t>();
  job.status = call.fields().status;
  kernels::rescale(job, stream);
  check.same_bytes(read_intact(check, device_powers, what), powers, what + ": powers");
  check.same_elements(to, read_intact(check, output, what), wanted, what);
  check.that((call.status().nonfinite != 0) == (host_status.nonfinite != 0), what + ": the note of NaN");
}

void hash_both(Check& check, void* stream, std::uint32_t count) {
  const std::string what = "hash of " + std::to_string(count) + " elements";
  const Bytes values = tensor(DType::f32, count, check.seed(), Kind::special);
  std::vector<std::uint32_t> wanted{1, 2};
  const Memory device_values(values, sizeof(float));
  const Memory sums(bytes_of(wanted));
  test::run_hash(values.data(), count, wanted.data());
  kernels::hash(device_values.data(), count, sums.as<std::uint32_t>(), stream);
  check.same_bytes(read_intact(check, sums, what), bytes_of(wanted), what);
}

// Gathers pieces of odd sizes, one without a tensor, into a run, and scatters them back.
void bucket_both(Check& check, void* stream, DType dtype, DType run_dtype) {
  const std::string what = "gather and scatter " + pair_name(dtype, run_dtype);
  const std::uint64_t counts[] = {3, 4097, 100, 1, 70'001};
  std::vector<std::unique_ptr<Memory>> tensors;
  std::vector<kernels::CopyPiece> pieces;
  std::vector<Bytes> inputs;
  std::uint64_t offset = 0;
  Bytes wanted;
  for (std::size_t i = 0; i < std::size(counts); ++i) {
    const bool missing = i == 2;
    inputs.push_back(tensor(dtype, counts[i], check.seed() + static_cast<unsigned>(i), Kind::special));
    tensors.push_back(std::make_unique<Memory>(inputs.back(), element_bytes(dtype)));
    pieces.push_back({missing ? nullptr : tensors.back()->data(), counts[i], offset});
    offset += counts[i];
    Bytes part(counts[i] * element_bytes(run_dtype));
    if (!missing) {
      test::run_convert(inputs.back().data(), dtype, part.data(), run_dtype, counts[i], 1, 1);
    }
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  const Memory run(wanted.size());
  kernels::gather(pieces, dtype, run.data(), run_dtype, stream);
  check.same_elements(run_dtype, read_intact(check, run, what), wanted, what + ": the run");
  for (const auto& memory : tensors) {
    memory->write(Bytes(memory->bytes(), std::byte{0x11}));
  }
  kernels::scatter(pieces, dtype, run.data(), run_dtype, stream);
  for (std::size_t i = 0; i < std::size(counts); ++i) {
    Bytes back(counts[i] * element_bytes(dtype), std::byte{0x11});
    if (pieces[i].tensor != nullptr) {
      test::run_convert(wanted.data() + pieces[i].offset * element_bytes(run_dtype), run_dtype, back.data(), dtype,
                        counts[i], 1, 1);
    }
    check.same_elements(dtype, read_intact(check, *tensors[i], what), back, what + ": tensor " + std::to_string(i));
  }
}

void weights_both(Check& check, void* stream, const std::vector<double>& weights, bool valid) {
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<const double*> pointers;
  double sum = 0;
  for (const double weight : weights) {
    memory.push_back(std::make_unique<Memory>(sizeof(double)));
    kernels::store_weight(weight, memory.back()->as<double>(), stream);
    pointers.push_back(memory.back()->as<double>());
    sum += weight;
  }
  sum = valid ? sum : std::numeric_limits<double>::quiet_NaN();
  const Memory totals(3 * sizeof(double));
  kernels::sum_weights(pointers, 7, totals.as<double>(), stream);
  const std::vector<double> wanted{sum, 1 / sum, 7 / sum};
  check.same_elements(DType::f64, read_intact(check, totals, "totals"), bytes_of(wanted),
                      "sum of " + std::to_string(weights.size()) + " weights, its inverse, own share");
}

}  // namespace

void check_elementwise(Check& check, void* stream) {
  check.part("convert", [&] {
    for (const DType from : kDTypes) {
      for (const DType to : kDTypes) {
        for (const std::uint32_t count : {1U, 4097U, check.small() ? 300U : 100'007U}) {
          convert_both(check, stream, from, to, count, 3, false);
        }
      }
      convert_both(check, stream, from, from, 4097, 1, true);
      convert_both(check, stream, from, DType::f32, 300, 3, false, true);
    }
  });
  check.part("fold", [&] {
    for (const DType dtype : kDTypes) {
      for (const std::uint32_t count : {0U, 1U, check.small() ? 300U : 100'007U}) {
        fold_both(check, stream, dtype, count);
      }
      fold_both(check, stream, dtype, 4096, Kind::special);
    }
  });
  check.part("scales", [&] {
    const std::uint32_t many = check.small() ? 2 * 4096 + 300 : 1'000'003;
    for (const DType dtype : kDTypes) {
      rescale_both(check, stream, dtype, DType::f32, many, true);
      rescale_both(check, stream, DType::f32, dtype, many, false);
      rescale_both(check, stream, DType::f32, dtype, 4096, false, Kind::large);
      rescale_both(check, stream, DType::f32, dtype, 4096, false, Kind::plain);
    }
    for (const std::uint32_t count : {0U, 1U, 4095U, 4096U}) {
      rescale_both(check, stream, DType::f32, DType::f32, count, true);
      hash_both(check, stream, count);
    }
    hash_both(check, stream, many);
  });
  check.part("gather and scatter", [&] {
    for (const DType dtype : kDTypes) {
      bucket_both(check, stream, dtype, dtype);
      bucket_both(check, stream, dtype, DType::f32);
    }
  });
  check.part("sum of weights", [&] {
    const double infinity = std::numeric_limits<double>::infinity();
    const double most = std::numeric_limits<double>::max();
    weights_both(check, stream, {1.5, 1e-3, 7, 0.1}, true);
    weights_both(check, stream, {most, 0}, true);
    std::vector<double> many(300, 0.1);  // of two launches
    weights_both(check, stream, many, true);
    std::fill(many.begin(), many.begin() + 256, 0.0);  // the sum of the first launch alone would not be valid
    weights_both(check, stream, many, true);
    many[3] = -1;
    weights_both(check, stream, many, false);
    for (const std::vector<double>& bad : {std::vector<double>{1, -1e-9, 7}, {0, 0}, {most, most}, {infinity, 1}}) {
      weights_both(check, stream, bad, false);
    }
  });
  check.part("advance the step", [&] {
    const DeviceCall call({});
    kernels::advance_step(call.step(), stream);
    kernels::advance_step(call.step(), stream);
    std::uint32_t step = 0;
    download(&step, call.step(), sizeof step);
    check.that(step == kStep + 2, "advance_step twice: " + std::to_string(step));
  });
  check.part("count steps with NaN", [&] {
    std::vector<std::uint32_t> noted(kernels::kNoteWords);
    noted[3] = noted[200] = 1;
    const Memory notes(bytes_of(noted));
    const Memory steps(bytes_of(std::vector<std::uint32_t>{6}));
    for (int step = 0; step < 3; ++step) {
      kernels::count_nonfinite(notes.as<std::uint32_t>(), steps.as<std::uint32_t>(), stream);
    }
    check.same_bytes(read_intact(check, notes, "notes"), bytes_of(std::vector<std::uint32_t>(kernels::kNoteWords)),
                     "the notes of NaN");
    check.same_bytes(read_intact(check, steps, "steps"), bytes_of(std::vector<std::uint32_t>{7}), "steps with NaN");
  });
}

// Uses two streams in turn, each with its own data: kernels that run at the same time share nothing.
void check_two_streams(Check& check) {
  const Stream streams[2];
  for (const Case& c : all_cases(true)) {
    check.part("two streams " + c.name(), [&] {
      const std::uint32_t count = check.small() ? 4096 + 300 : 1'000'003;
      const int rounds = check.small() ? 1 : 6;
      const DeviceCall call(c.frame_codec());
      std::vector<std::unique_ptr<Memory>> values;
      std::vector<std::unique_ptr<Memory>> frames;
      std::vector<std::unique_ptr<Memory>> decoded;
      Bytes inputs[2];
      Bytes wanted[2];
      for (unsigned s = 0; s < 2; ++s) {
        inputs[s] = tensor(c.dtype, count, check.seed() + s);
        wanted[s] = host_frame(c, inputs[s], c.dtype, count);
        values.push_back(std::make_unique<Memory>(inputs[s]));
      }
      for (int i = 0; i < 2 * rounds; ++i) {
        frames.push_back(std::make_unique<Memory>(wanted[0].size()));
        decoded.push_back(std::make_unique<Memory>(inputs[0].size()));
      }
      for (std::size_t i = 0; i < frames.size(); ++i) {
        void* stream = streams[i % 2].get();
        const kernels::FramePlace place{.bytes = frames[i]->frame(), .count = count, .peer = 0};
        kernels::encode(
            {.call = call.fields(), .frame = place, .values = values[i % 2]->data(), .values_dtype = c.dtype}, stream);
        kernels::decode({.call = call.fields(), .frame = place, .values = decoded[i]->data(), .values_dtype = c.dtype},
                        stream);
      }
      for (unsigned s = 0; s < 2; ++s) {
        HostCall host(c.frame_codec());
        Bytes result(inputs[s].size());
        Bytes frame = wanted[s];
        test::run_decode({.call = host.fields,
                          .frame = {.bytes = reinterpret_cast<std::uint8_t*>(frame.data()), .count = count, .peer = 0},
                          .values = result.data(),
                          .values_dtype = c.dtype});
        for (std::size_t i = s; i < frames.size(); i += 2) {
          const std::string what = "two streams " + c.name() + ", call " + std::to_string(i);
          check.same_bytes(read_intact(check, *frames[i], what), wanted[s], what + ": frame");
          check.same_elements(c.dtype, read_intact(check, *decoded[i], what), result, what + ": values");
        }
      }
    });
  }
}

}  // namespace gradwire::gpu

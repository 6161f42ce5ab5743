// The torch_npu that this binding was built for, as a text that is read from the file without loading it:
// npu_rope/cann_versions.py, npu-rope doctor.
namespace {

__attribute__((used)) const char kBuiltFor[] = "[npu_rope] built for torch_npu " NPU_ROPE_TORCH_NPU_VERSION;

}  // namespace

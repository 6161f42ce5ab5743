// The version of torch_npu that this binding was built for. npu_rope/cann_versions.py reads the text from the file,
// without loading the binding.
namespace {

__attribute__((used)) const char kBuiltFor[] = "[npu_rope] built for torch_npu " NPU_ROPE_TORCH_NPU_VERSION;

}  // namespace

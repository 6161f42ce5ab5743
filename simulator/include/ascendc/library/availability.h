// The rows of availability.h for library functions; the same rules hold. A page's list of types is the source.
#pragma once

// ROW(identifier, name, Ascend910B and 910_93, Ascend310P, Ascend950, source)
#define ASCEND_SIM_LIBRARY_FUNCTIONS(ROW)                                                                            \
    ROW(Ceil, "Ceil", kFloating, kFloating, kFloating, "Ceil")                                                       \
    ROW(Floor, "Floor", kFloating, kFloating, kFloating, "Floor")                                                    \
    ROW(Round, "Round", kFloating, kFloating, kFloating, "Round")                                                    \
    ROW(Trunc, "Trunc", kFloating, kFloating, kFloating, "Trunc")                                                    \
    ROW(Frac, "Frac", kFloating, kFloating, kFloating, "Frac")                                                       \
    ROW(Fmod, "Fmod", kFloating, kFloating, kFloating, "Fmod")                                                       \
    ROW(Sign, "Sign", kFloating, kFloating, kFloating, "Sign")                                                       \
    ROW(ClampMax, "ClampMax", kFloating, kFloating, kFloating, "ClampMax")                                           \
    ROW(ClampMin, "ClampMin", kFloating, kFloating, kFloating, "ClampMin")                                           \
    ROW(Xor, "Xor", kInt16s, kInt16s, kInt16s, "Xor")                                                                \
    ROW(TaylorExp, "Exp with taylorExpandLevel", kFloating, kNone, kFloating, "Exp")                                 \
    ROW(Log, "Log", kFloating, kFloating, kFloating, "Log")                                                          \
    ROW(Log2, "Log2", kFloating, kFloating, kFloating, "Log")                                                        \
    ROW(Log10, "Log10", kFloating, kFloating, kFloating, "Log")                                                      \
    ROW(Power, "Power", kFloating, kFloating, kFloating, "Power; also int32 there")                                  \
    ROW(Sin, "Sin", kFloating, kFloating, kFloating, "Sin")                                                          \
    ROW(Cos, "Cos", kFloating, kFloating, kFloating, "Cos")                                                          \
    ROW(Tan, "Tan", kFloating, kFloating, kFloating, "Tan")                                                          \
    ROW(Asin, "Asin", kFloating, kFloating, kFloating, "Asin")                                                       \
    ROW(Acos, "Acos", kFloating, kFloating, kFloating, "Acos")                                                       \
    ROW(Atan, "Atan", kFloating, kFloating, kFloating, "Atan")                                                       \
    ROW(Tanh, "Tanh", kFloating, kFloating, kFloating, "Tanh")                                                       \
    ROW(Sinh, "Sinh", kFloating, kFloating, kFloating, "Sinh")                                                       \
    ROW(Cosh, "Cosh", kFloating, kFloating, kFloating, "Cosh")                                                       \
    ROW(Asinh, "Asinh", kFloating, kFloating, kFloating, "Asinh")                                                    \
    ROW(Acosh, "Acosh", kFloating, kFloating, kFloating, "Acosh")                                                    \
    ROW(Atanh, "Atanh", kFloating, kFloating, kFloating, "Atanh")                                                    \
    ROW(Erf, "Erf", kFloating, kFloating, kFloating, "Erf")                                                          \
    ROW(Erfc, "Erfc", kFloating, kFloating, kFloating, "Erfc")                                                       \
    ROW(Sigmoid, "Sigmoid", kFloating, kFloating, kFloating, "Sigmoid")                                              \
    ROW(Silu, "Silu", kFloating, kFloating, kFloating, "Silu")                                                       \
    ROW(Swish, "Swish", kFloating, kFloating, kFloating, "Swish")                                                    \
    ROW(Gelu, "Gelu", kFloating, kFloating, kFloating, "Gelu")                                                       \
    ROW(FasterGelu, "FasterGelu", kFloating, kFloating, kFloating, "FasterGelu")                                     \
    ROW(FasterGeluV2, "FasterGeluV2", kFloating, kFloating, kFloating, "FasterGeluV2")                               \
    ROW(SwiGLU, "SwiGLU", kFloating, kFloating, kFloating, "SwiGLU")                                                 \
    ROW(GeGLU, "GeGLU", kFloating, kFloating, kFloating, "GeGLU")                                                    \
    ROW(ReGlu, "ReGlu", kFloating | kBfloat16, kFloating, kFloating | kBfloat16, "ReGlu")                            \
    ROW(Broadcast, "Broadcast", kInt8s | kFloating, kInt8s | kFloating, kInt8s | kFloating, "Broadcast")             \
    ROW(SoftMax, "SoftMax", kFloating, kFloating, kFloating, "SoftMax")                                              \
    ROW(LogSoftMax, "LogSoftMax", kFloating, kFloating, kFloating, "LogSoftMax")                                     \
    ROW(SimpleSoftMax, "SimpleSoftMax", kFloating, kFloating, kFloating, "SimpleSoftMax")                            \
    ROW(AdjustSoftMaxRes, "AdjustSoftMaxRes", kFloating, kFloating, kFloating, "AdjustSoftMaxRes")                   \
    ROW(SoftmaxFlash, "SoftmaxFlash", kFloating, kFloating, kFloating, "SoftmaxFlash")                               \
    ROW(SoftmaxFlashV2, "SoftmaxFlashV2", kFloating, kFloating, kFloating, "SoftmaxFlashV2")                         \
    ROW(SoftmaxGrad, "SoftmaxGrad", kFloating, kFloating, kFloating, "SoftmaxGrad")                                  \
    ROW(SoftmaxGradFront, "SoftmaxGradFront", kFloating, kFloating, kFloating, "SoftmaxGradFront")                   \
    ROW(LayerNorm, "LayerNorm", kFloating, kFloating, kFloating, "LayerNorm")                                        \
    ROW(LayerNormRstd, "LayerNorm with outputRstd", kFloating, kFloating, kFloating | kBfloat16, "LayerNorm")        \
    ROW(Normalize, "Normalize", kFloating, kFloating, kFloating | kBfloat16, "Normalize")                            \
    ROW(RmsNorm, "RmsNorm", kFloating, kFloating, kFloating, "RmsNorm")                                              \
    ROW(DeepNorm, "DeepNorm", kFloating, kFloating, kFloating, "DeepNorm")                                           \
    ROW(BatchNorm, "BatchNorm", kFloating, kFloating, kFloating, "BatchNorm")                                        \
    ROW(GroupNorm, "GroupNorm", kFloating, kNone, kFloating, "GroupNorm")                                            \
    ROW(WelfordUpdate, "WelfordUpdate", kFloating, kFloating, kFloating | kBfloat16, "WelfordUpdate")                \
    ROW(LayerNormGrad, "LayerNormGrad", kFloating, kFloating, kFloating, "LayerNormGrad")                            \
    ROW(LayerNormGradBeta, "LayerNormGradBeta", kFloating, kFloating, kFloating, "LayerNormGradBeta")                \
    ROW(SumPattern, "ReduceSum of rows or columns", kFloat, kNone, kInt32s | kInt64s | kFloat, "ReduceSum")          \
    ROW(MeanPattern, "ReduceMean of rows or columns", kFloat, kNone, kFloat, "ReduceMean")                           \
    ROW(MaxPattern, "ReduceMax of rows or columns", kFloating, kNone, kInt8s | kWords | kBfloat16 | kInt64s,         \
        "ReduceMax")                                                                                                 \
    ROW(MinPattern, "ReduceMin of rows or columns", kFloating, kNone, kInt8s | kWords | kBfloat16 | kInt64s,         \
        "ReduceMin")                                                                                                 \
    ROW(ProdPattern, "ReduceProd of rows or columns", kFloat, kNone, kFloat, "ReduceProd")                           \
    ROW(AnyPattern, "ReduceAny of rows or columns", kUint8 | kFloat, kNone, kUint8 | kFloat, "ReduceAny")            \
    ROW(AllPattern, "ReduceAll of rows or columns", kUint8 | kFloat, kNone, kUint8 | kFloat, "ReduceAll")            \
    ROW(Sum, "Sum", kFloating, kFloating, kFloating, "Sum")                                                          \
    ROW(Mean, "Mean", kFloating, kFloating, kFloating, "Mean")                                                       \
    ROW(AscendQuant, "AscendQuant", kFloating, kFloating, kFloating, "AscendQuant")                                  \
    ROW(AscendDequant, "AscendDequant to", kFloating | kBfloat16, kFloating, kFloating | kBfloat16, "AscendDequant") \
    ROW(AscendAntiQuant, "AscendAntiQuant to", kHalf | kBfloat16, kHalf, kHalf | kBfloat16, "AscendAntiQuant")       \
    ROW(Sort, "Sort", kFloating, kFloating, kFloating, "Sort")                                                       \
    ROW(MrgSortLists, "MrgSort of counted lists", kFloating, kFloating, kFloating, "MrgSort-93")                     \
    ROW(Concat, "Concat", kFloating, kFloating, kFloating, "Concat")                                                 \
    ROW(Extract, "Extract", kFloating, kFloating, kFloating, "Extract")

# The models of PyTorch that the benchmark trains. Each is a network, an optimizer, an input, and the loss of an output.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=1e-3)


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=1e-3)


class Attention(nn.Module):
    def __init__(self, width, heads, tokens, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (w // self.heads) ** -0.5) @ k.transpose(-1, -2)
        if self.causal:
            scores = scores.masked_fill(self.future, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    # A layer of a transformer that normalises last, as in BERT and in GoMLX's zoo.
    def __init__(self, width, heads, tokens, causal):
        super().__init__()
        self.attention = Attention(width, heads, tokens, causal)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


def gpt(width, batch):
    vocabulary, tokens = 128, 64
    net = nn.Sequential(nn.Embedding(vocabulary, width), *[Layer(width, width // 32, tokens, True) for _ in range(4)],
                        nn.Linear(width, vocabulary, bias=False))
    x, y = torch.randint(0, vocabulary, (batch, tokens)), torch.randint(0, vocabulary, (batch * tokens,))
    return net, adam, x, lambda out: F.cross_entropy(out.view(-1, vocabulary), y)


def bert(batch):
    net = Layer(768, 12, 128, False)
    x, y = torch.randn(batch, 128, 768), torch.randn(batch, 128, 768)
    return net, adam, x, lambda out: F.mse_loss(out, y)


def mlp(batch, width=4096):
    net = nn.Sequential(nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1024))
    x, y = torch.randn(batch, 1024), torch.randn(batch, 1024)
    return net, sgd, x, lambda out: F.mse_loss(out, y)


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.layers(x) + self.shortcut(x), inplace=True)


def basic(inputs, outputs, stride):
    return Residual(inputs, outputs, stride, convolution(inputs, outputs, 3, stride), nn.ReLU(inplace=True), convolution(outputs, outputs, 3))


def resnet(batch):
    net = nn.Sequential(convolution(3, 8, 3), nn.ReLU(inplace=True), basic(8, 8, 1), basic(8, 16, 2), basic(16, 32, 2),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8))
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 8, (batch,))
    return net, adam, x, lambda out: F.cross_entropy(out, y)


class Scale(nn.Module):
    # So that gradients go through the first convolution.
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x):
        return x * self.scale


def bottleneck(batch):
    net = nn.Sequential(Scale(256), Residual(256, 256, 1, convolution(256, 64, 1), nn.ReLU(inplace=True),
                                             convolution(64, 64, 3), nn.ReLU(inplace=True), convolution(64, 256, 1)))
    x, y = torch.randn(batch, 256, 56, 56), torch.randn(batch, 256, 56, 56)
    return net, sgd, x, lambda out: F.mse_loss(out, y)


class LSTM(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm, self.out = nn.LSTM(width, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[1][0][0])


def lstm(batch, steps, width):
    net = LSTM(width)
    x, y = torch.randn(batch, steps, width), torch.randn(batch, 1)
    return net, adam, x, lambda out: F.mse_loss(out, y)


class Experts(nn.Module):
    # Each token goes to two experts, which have room for so many tokens of each group ("GShard", Lepikhin et al. 2020).
    def __init__(self, width, hidden, experts, capacity):
        super().__init__()
        self.experts, self.capacity = experts, capacity
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width ** -0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden ** -0.5)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)  # [groups, tokens, 2]
        chosen = F.one_hot(chosen, self.experts)
        before = chosen.sum(2).cumsum(1) - chosen.sum(2)  # at each expert, when a token comes
        place = F.one_hot(before.clamp(max=self.capacity), self.capacity + 1)[..., :-1].to(x.dtype)
        weights = (chosen * (weights / weights.sum(-1, keepdim=True)).unsqueeze(-1)).sum(2)
        dispatch = chosen.sum(2).unsqueeze(-1) * place  # [groups, tokens, experts, capacity]
        combine = weights.unsqueeze(-1) * place
        tokens = torch.einsum("gtec,gtd->egcd", dispatch, x)
        e, g, c, d = tokens.shape
        answers = torch.bmm(F.relu(torch.bmm(tokens.reshape(e, g * c, d), self.up)), self.down)
        return x + torch.einsum("gtec,egcd->gtd", combine, answers.view(e, g, c, d))


def moe(batch):
    tokens, width, experts = 64, 128, 8
    net = Experts(width, 512, experts, 24)
    x, y = torch.randn(batch, tokens, width), torch.randn(batch, tokens, width)
    return net, adam, x, lambda out: F.mse_loss(out, y)
